"""Cellar, abi. Functions of the driver, by the chapters of its manual."""
