"""Cellar, core. Execution control: kernels as commands, their faults, their printf."""
