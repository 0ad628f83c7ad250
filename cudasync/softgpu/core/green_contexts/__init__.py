"""Cellar, core. Green contexts: parts of a device, as bookkeeping of its multiprocessors."""
