"""Floor 1. Memory: its owners, its copies and its fills."""
