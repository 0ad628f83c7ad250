"""Cellar. A scheduler that finds bugs: a seeded random choice among the runnable commands."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.streams.commands import Command


class Seed:
    """The same order for the same seed, as long as one thread makes the calls."""

    runs_ahead = True

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = Random(seed)

    def choose(self, ready: Sequence[Command]) -> Command:
        """Any ready command."""
        return self._random.choice(ready)
