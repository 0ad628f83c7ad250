"""Cellar, jit. PTX to PTX: a kernel and its callees in, one program with its memory laid out."""
