"""Cellar, core. Execution control: a kernel as a command, its fault, its printf."""
