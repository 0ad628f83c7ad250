"""Cellar, jit. How a warp goes from block to block under masks, and what it keeps suspended."""
