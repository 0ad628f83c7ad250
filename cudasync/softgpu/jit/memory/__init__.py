"""Cellar, jit. Loads, stores and moves: addresses, bounds, memcheck, the form of an access."""
