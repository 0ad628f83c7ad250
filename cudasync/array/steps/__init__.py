"""Floor 4, steps. Launches of generated kernels on arrays, the parts of plans with several."""
