"""Cellar, jit. The interface between Python and compiled code: words, arguments, descriptors."""
