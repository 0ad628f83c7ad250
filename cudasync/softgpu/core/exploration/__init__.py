"""Cellar. Exploration: runs a program once for each order of its commands that may matter."""
