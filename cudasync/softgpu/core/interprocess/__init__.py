"""Cellar, core. Interprocess communication: memory and events that several processes see."""
