"""Cellar. PTX to machine code that runs one thread at a time: slow, plain, the second opinion."""

from __future__ import annotations

from cudasync.softgpu.oracle.module import compile_module

__all__ = ["compile_module"]
