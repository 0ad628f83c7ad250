"""Cellar, abi. cuSPARSE, whose functions are all refused by name: clients can be imported."""
