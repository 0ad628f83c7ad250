"""Cellar. Schedulers: choose the next command among the runnable ones.

A scheduler sees only commands that are allowed to run, so a GPU could make each of its choices.
Each strategy has its own file.
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
"""The name of the mode without a scheduler: see `threaded_executor.py`."""


class Scheduler(Protocol):
    """A strategy."""

    @property
    def runs_ahead(self) -> bool:
        """True if the scheduler may also choose commands that nothing waits for yet."""

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
    more = "; for every order, call cudasync.testing.explore" if name == "explore" else ""
    raise ValueError(f"there is no scheduler {text!r}: choose from fifo, seed=N, {THREADED}{more}")
