"""Cellar, oracle. One file for each family of instructions, named as in jit."""
