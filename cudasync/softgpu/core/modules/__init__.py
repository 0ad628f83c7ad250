"""Cellar, core. Module management: loading modules, finding kernels, packing parameters."""
