"""Cellar, abi. Functions of the driver about graphs and capture."""
