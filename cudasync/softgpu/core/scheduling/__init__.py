"""Cellar, core. Who executes which ready command, and when."""
