"""Cellar. The default scheduler: the oldest command first, and only needed commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.streams.commands import Command


class Fifo:
    """Runs commands in the order of enqueueing, the same in every run."""

    runs_ahead = False

    def choose(self, ready: Sequence[Command]) -> Command:
        """The oldest command."""
        return ready[0]
