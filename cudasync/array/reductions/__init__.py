"""Floor 4, reductions. Many elements to one: planned once for a layout, run often."""
