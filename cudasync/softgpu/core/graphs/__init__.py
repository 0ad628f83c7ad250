"""Cellar. Graphs of work: built node by node or by capture, instantiated, launched, updated."""
