"""Cellar, oracle. Python between the turns of threads: scheduling, and results of whole warps."""
