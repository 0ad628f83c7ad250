"""The tower. Tools for users' own tests: latches, every order of a program, and checks of one."""

from __future__ import annotations

from cudasync.testing.checks import Access, Finding, check, host_access
from cudasync.testing.exploration import Exploration, explore
from cudasync.testing.latch import HostLatch, Latch
from cudasync.testing.seeds import run_seeds

__all__ = [
    "Access",
    "Exploration",
    "Finding",
    "HostLatch",
    "Latch",
    "check",
    "explore",
    "host_access",
    "run_seeds",
]
