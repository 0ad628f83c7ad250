"""Floor 4, expressions. Trees of elementwise functions, and the kernels made of them."""
