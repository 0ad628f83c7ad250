"""Cellar. The interface of driver model and compiled code: a launch, and records in memory."""
