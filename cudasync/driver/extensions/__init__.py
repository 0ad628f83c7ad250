"""Floor 1. Functions of the software GPU's driver: checks, schedules, exploration. By name."""
