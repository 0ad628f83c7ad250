"""Cellar, jit. The LLVM functions around warps: parallel regions, loops over warps and blocks."""
