"""Cellar, abi. cuFFT over NumPy: transforms of one to three dimensions, in batches."""
