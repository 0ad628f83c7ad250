"""Cellar, jit. PTX to PTX: turns a kernel and its callees into one program with a memory layout."""
