"""Cellar, abi. Functions that no driver has: tests and checks ask for them by name."""
