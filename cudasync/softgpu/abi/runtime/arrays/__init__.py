"""Cellar, abi. Runtime API: CUDA arrays, textures and surfaces."""
