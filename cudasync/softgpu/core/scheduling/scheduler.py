"""Cellar. Schedulers: which of the commands that may run next does.

A scheduler sees only commands that are all allowed to run; every choice it can make is one that
a GPU could make. One strategy for each file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from cudasync.softgpu.core.scheduling.fifo import Fifo
from cudasync.softgpu.core.scheduling.random_order import Seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.streams.commands import Command

__all__ = ["THREADED", "Scheduler", "make_scheduler"]

THREADED: Final = "threaded"
"""The name of the one way in which nobody chooses: see `threaded_executor.py`."""


class Scheduler(Protocol):
    """A strategy."""

    @property
    def runs_ahead(self) -> bool:
        """True to be offered also what nobody waits for yet."""

    def choose(self, ready: Sequence[Command]) -> Command:
        """One of `ready`, which is not empty and is sorted by age, the oldest first."""


def make_scheduler(text: str) -> Scheduler:
    """The scheduler called "fifo" or "seed=N"; ValueError for anything else."""
    name, _, value = text.partition("=")
    if name == "fifo" and not value:
        return Fifo()
    if name == "seed":
        try:
            return Seed(int(value))
        except ValueError:
            pass
    more = "; every order is for cudasync.testing.explore" if name == "explore" else ""
    raise ValueError(f"no scheduler called {text!r}: fifo, seed=N, {THREADED}{more}")
