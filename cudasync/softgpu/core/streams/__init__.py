"""Cellar, core. Streams and events: commands, and what they depend on."""
