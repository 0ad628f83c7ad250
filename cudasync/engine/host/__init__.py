"""Floor 2. Threads that run host ops."""
