"""Cellar, jit. Emitters for instructions that only compute: operands in, LLVM text out."""
