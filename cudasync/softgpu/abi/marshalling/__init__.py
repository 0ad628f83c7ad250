"""Cellar, abi. C values and structures to Python and back."""
