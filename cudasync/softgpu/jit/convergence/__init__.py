"""Cellar, jit. Who comes to barriers and to what lanes of a warp do together: code for a check."""
