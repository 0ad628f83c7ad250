"""Cellar, core. Data types that the whole driver model uses."""
