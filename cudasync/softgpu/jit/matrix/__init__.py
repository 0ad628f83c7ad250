"""Cellar, jit. Products of matrices and their fragments: mma, wmma, ldmatrix."""
