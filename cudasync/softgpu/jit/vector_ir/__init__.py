"""Cellar, jit. Writes LLVM text with warps as values: uniformity, lane masks, the builder."""
