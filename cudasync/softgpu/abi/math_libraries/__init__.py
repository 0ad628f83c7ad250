"""Cellar, abi. Stand-ins for NVIDIA's libraries of mathematics, over NumPy: see `stand_in.py`."""
