"""Floor 1. Memory: who owns it, and copies and fills of it."""
