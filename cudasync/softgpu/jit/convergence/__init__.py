"""Cellar, jit. Code for the convergence check: arrivals at barriers and warp-wide instructions."""
