"""Floor 1. CUDA C to PTX: NVRTC, the files that it reads, and its diagnostics."""
