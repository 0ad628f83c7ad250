"""Cellar, jit. Analyses a program before text is written."""
