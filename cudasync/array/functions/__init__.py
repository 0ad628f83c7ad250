"""Floor 4, functions. Elementwise functions: dtypes of operands and results, CUDA C and NumPy."""
