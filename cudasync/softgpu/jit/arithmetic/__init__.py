"""Cellar, jit. Instructions that only compute: operands in, LLVM text out."""
