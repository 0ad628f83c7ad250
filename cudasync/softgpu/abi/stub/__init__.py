"""Cellar, abi. The shared libraries that programs load: what they export, and what is behind it."""
