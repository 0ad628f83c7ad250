"""Cellar. PTX to warp-vector machine code."""

from __future__ import annotations

from cudasync.softgpu.jit.module import compile_module

__all__ = ["compile_module"]
