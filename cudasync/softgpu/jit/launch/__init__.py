"""Cellar, jit. Runs a launch: its blocks, threads, scratch memory and faults."""
