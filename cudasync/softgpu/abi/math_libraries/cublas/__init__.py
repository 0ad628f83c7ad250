"""Cellar, abi. cuBLAS over NumPy: levels 1 to 3 of the four types, batched products."""
