"""Cellar, jit. Loads, stores and moves, in the form that suits each access."""
