"""Cellar. The sanitizer: finds what a program did wrong, even in a run with a right result."""
