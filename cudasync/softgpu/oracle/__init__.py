"""Cellar. PTX to one-thread-at-a-time machine code: slow, plain, the second opinion."""
