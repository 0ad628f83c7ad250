"""Cellar. The default scheduler: the oldest command first, and nothing before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.streams.commands import Command


class Fifo:
    """The same order in every run: that in which commands were enqueued."""

    runs_ahead = False

    def choose(self, ready: Sequence[Command]) -> Command:
        """The oldest."""
        return ready[0]
