"""Floor 4, functions. Elementwise functions: what they take and give, in CUDA C and NumPy."""
