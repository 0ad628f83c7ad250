"""Cellar. The software GPU: a libcuda.so.1 written in Python, beneath cuda.bindings."""
