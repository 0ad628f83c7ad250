"""Floor 1. CUDA C to PTX: NVRTC, what it reads, what it has against a text."""
