"""Cellar, jit. Compiles PTX to machine code in which a warp is a vector."""

from __future__ import annotations

from cudasync.softgpu.jit.module import compile_module

__all__ = ["compile_module"]
