"""Floor 2. The one order of all pushes, and the combiner that goes through it."""
