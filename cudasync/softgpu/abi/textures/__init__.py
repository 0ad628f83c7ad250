"""Cellar. Driver calls about CUDA arrays, textures and surfaces."""
