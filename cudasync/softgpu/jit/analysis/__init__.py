"""Cellar, jit. A program in; what is known of it before text is written out."""
