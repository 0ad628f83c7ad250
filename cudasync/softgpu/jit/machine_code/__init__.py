"""Cellar, jit. LLVM text in, machine code out, and both on disk."""
