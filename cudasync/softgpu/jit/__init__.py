"""Cellar. PTX to warp-vector machine code."""
