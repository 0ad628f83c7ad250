"""Cellar, expansion. Calls that become PTX: printf, malloc, function pointers, conditions."""
