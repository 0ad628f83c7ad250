"""The tower. Tools for users' own tests: latches, orders, checks, random programs."""

from __future__ import annotations

from cudasync.testing.checks import Access, Finding, check, host_access
from cudasync.testing.exploration import Exploration, explore
from cudasync.testing.latch import HostLatch, Latch
from cudasync.testing.seeds import run_seeds
from cudasync.testing.strategies import (
    LaunchShape,
    Program,
    ProgramStep,
    arrays,
    check_against_serial,
    dags,
    launches,
    programs,
)

__all__ = [
    "Access",
    "Exploration",
    "Finding",
    "HostLatch",
    "Latch",
    "LaunchShape",
    "Program",
    "ProgramStep",
    "arrays",
    "check",
    "check_against_serial",
    "dags",
    "explore",
    "host_access",
    "launches",
    "programs",
    "run_seeds",
]
