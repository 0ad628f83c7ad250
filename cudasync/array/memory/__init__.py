"""Floor 4, memory. Blocks of device memory that results come from, and go back to."""
