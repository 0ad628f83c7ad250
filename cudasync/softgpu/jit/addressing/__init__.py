"""Cellar, jit. Addresses: their state space, their bounds, and the check before an access."""
