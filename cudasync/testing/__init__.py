"""The tower. Tools for users' own tests: latches, and programs run in every order."""

from __future__ import annotations

from cudasync.testing.exploration import Exploration, explore
from cudasync.testing.latch import HostLatch, Latch

__all__ = ["Exploration", "HostLatch", "Latch", "explore"]
