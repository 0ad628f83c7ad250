"""Cellar. The sanitizer: what a program did wrong, on runs whose result may be right."""
