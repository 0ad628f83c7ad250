"""Cellar. Exploration: a program is run once for each order of its commands that may matter."""
