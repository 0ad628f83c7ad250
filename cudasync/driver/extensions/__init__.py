"""Floor 1. Driver functions that only the software GPU has: checks, schedules, exploration."""
