"""Cellar, core. Scheduling: which thread executes which ready command, and when."""
