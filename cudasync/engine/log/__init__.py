"""Floor 2. The total order of all pushes, and the combiner that drains it."""
