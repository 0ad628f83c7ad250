"""Cellar, jit. Turns LLVM text into machine code, and keeps both on disk."""
