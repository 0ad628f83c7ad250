"""Cellar, abi. cuRAND's host interface over NumPy."""
