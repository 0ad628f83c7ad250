"""Cellar, oracle. Python between the turns of threads: whose turn, results of whole warps."""
