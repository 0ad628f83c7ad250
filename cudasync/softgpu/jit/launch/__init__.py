"""Cellar, jit. A launch under way: its blocks, threads, scratch memory and faults."""
