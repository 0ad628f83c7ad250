"""Floor 1. Modules, the kernels in them, and their launches."""
