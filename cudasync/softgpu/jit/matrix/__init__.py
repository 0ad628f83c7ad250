"""Cellar, jit. Matrix products and fragments: mma, wmma, ldmatrix."""
