"""Cellar, core. Streams and events: commands and their dependencies."""
