"""Floor 4, fused functions. A Python function of arrays becomes one kernel per signature."""

from __future__ import annotations

from cudasync.array.fused.function import Elementwise, elementwise

__all__ = ["Elementwise", "elementwise"]
