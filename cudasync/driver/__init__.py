"""Floor 1. CUDA's nouns, each with an owner and a lifetime, over cuda.bindings."""
