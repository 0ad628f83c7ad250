"""Cellar, jit. Shuffles, votes, barriers, fences and atomics: "Parallel Synchronization"."""
