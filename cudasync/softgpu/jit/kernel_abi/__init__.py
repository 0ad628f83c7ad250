"""Cellar, jit. What Python and compiled code agree on: words, arguments, descriptors."""
