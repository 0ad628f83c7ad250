"""Cellar, jit. Moves a warp from block to block under masks, and keeps its state on suspension."""
