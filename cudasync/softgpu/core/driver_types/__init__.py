"""Cellar, core. Data types used by the driver."""
