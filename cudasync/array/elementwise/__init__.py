"""Floor 4, elementwise. Operations on arrays: planned once for operands of a layout, run often."""
