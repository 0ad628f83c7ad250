"""Cellar. Walks over what commands depend on: what a wait needs, and why a wait can not end.

Both are called with the executor's lock held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.core.commands import Command
    from cudasync.softgpu.core.streams import Stream


def want(targets: Iterable[Command]) -> None:
    """Mark what `targets` need; what is marked already has had its needs marked."""
    stack = [target for target in targets if not target.is_wanted]
    while stack:
        command = stack.pop()
        if not command.is_wanted:
            command.is_wanted = True
            stack.extend(command.dependencies)


def deadlock_report(left: Iterable[Command]) -> str:
    streams: dict[Stream, Command] = {
        c.stream: c.stream.pending[0] for c in left if c.stream.pending
    }
    lines = []
    for stream, head in streams.items():
        awaited = ", ".join(
            f"{other.describe()} of {other.stream.name}"
            for other in head.dependencies
            if not other.is_done
        )
        lines.append(f"{stream.name}: {head.describe()} waits for {awaited or 'nothing known'}")
    return "deadlock: nothing is ready to run; " + "; ".join(lines)
