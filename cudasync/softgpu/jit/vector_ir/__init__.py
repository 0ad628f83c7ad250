"""Cellar, jit. Writes LLVM text whose values are warps: uniformity, lane masks, the builder."""
