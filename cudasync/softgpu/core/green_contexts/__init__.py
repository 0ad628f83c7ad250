"""Cellar, core. Green contexts: parts of a device, as sets of its multiprocessors."""
