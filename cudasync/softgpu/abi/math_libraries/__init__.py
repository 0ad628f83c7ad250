"""Cellar, abi. Stand-ins for NVIDIA's mathematical libraries, over NumPy: see `stand_in.py`."""
