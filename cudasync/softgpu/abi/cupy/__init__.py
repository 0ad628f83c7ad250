"""Cellar, abi. CuPy as it is, above the table of the runtime API."""
