"""Floor 2. The ends of engines, processes and waits."""
