"""Cellar. CUDA graphs: built node by node or by capture, instantiated, launched, updated."""
