"""The tower. Tools for users' own tests: latches, strategies, the serial oracle."""

from __future__ import annotations

from cudasync.testing.latch import HostLatch, Latch

__all__ = ["HostLatch", "Latch"]
