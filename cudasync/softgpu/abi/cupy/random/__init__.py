"""Cellar, abi. CuPy's random generators, with numbers from NumPy's bit generators."""
