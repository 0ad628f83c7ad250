"""Cellar. What the driver model and compiled code agree on: a launch, and records in memory."""
