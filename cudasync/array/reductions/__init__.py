"""Floor 4, reductions. From many elements to one: planned once for a layout, run often."""
