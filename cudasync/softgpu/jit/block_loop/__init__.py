"""Cellar, jit. The LLVM functions around warps: parallel regions, warps, blocks."""
