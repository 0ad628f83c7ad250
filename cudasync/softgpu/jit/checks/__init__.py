"""Cellar, jit. What checked code does besides: accesses recorded, races and unwritten bytes."""
