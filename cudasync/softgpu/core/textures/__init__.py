"""Cellar. CUDA arrays, and the texture and surface objects through which kernels read them."""
