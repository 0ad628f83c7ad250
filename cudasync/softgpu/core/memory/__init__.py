"""Cellar, core. Memory management: allocations, pools, virtual and managed memory, copies."""
