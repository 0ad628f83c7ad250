"""Floor 1. What only some drivers can do: checks, schedules, exploration. Found by name."""
