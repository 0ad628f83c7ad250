"""Cellar, core. Module management: load, find, pack parameters."""
