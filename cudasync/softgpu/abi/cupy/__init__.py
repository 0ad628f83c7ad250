"""Cellar, abi. CuPy, unmodified, above the table of the runtime API."""
