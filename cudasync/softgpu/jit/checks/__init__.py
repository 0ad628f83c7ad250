"""Cellar, jit. Code for checks: recorded accesses, races and unwritten bytes."""
