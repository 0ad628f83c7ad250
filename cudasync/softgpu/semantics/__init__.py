"""Cellar. The meaning and validity of PTX instructions, for both lowerings."""
