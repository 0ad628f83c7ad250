"""Cellar, jit. Addresses: the space they lie in, their bounds, the check before an access."""
