"""Cellar. Walks over what commands depend on: what a wait needs, and why a wait can not end.

They are called with the executor's lock held.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING

from cudasync.softgpu.interface.internal_threads import OURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.streams import Stream


def want(targets: Iterable[Command]) -> None:
    """Mark what `targets` need; what is marked already has had its needs marked."""
    stack = [target for target in targets if not target.is_wanted]
    while stack:
        command = stack.pop()
        if not command.is_wanted:
            command.is_wanted = True
            stack.extend(command.awaited())


def deadlock_report(left: Iterable[Command]) -> str:
    """Every stream of the contexts concerned that has work, and what the first of it waits for."""
    contexts = {command.stream.context: None for command in needed(left)}
    lines = [_line(s) for c in contexts for s in list(c.streams) if s.pending or s.waits]
    return "deadlock: nothing is ready to run; " + "; ".join(lines)


def needed(targets: Iterable[Command]) -> Iterator[Command]:
    """The targets, and all that they depend on."""
    stack, seen = list(targets), set(targets)
    while stack:
        command = stack.pop()
        yield command
        new = [other for other in command.awaited() if other not in seen]
        seen.update(new)
        stack += new


def _line(stream: Stream) -> str:
    if not stream.pending:
        awaited = [f"{other.describe()} of {other.stream.name}" for other in list(stream.waits)]
        return f"{stream.name}: a wait for an event waits for " + ", ".join(awaited)
    head = stream.pending[0]
    awaited = [
        f"{other.describe()} of {other.stream.name}"
        for other in head.awaited()
        if not other.is_done
    ]
    behind = len(stream.pending) - 1
    more = f" ({behind} more behind it)" if behind else ""
    return f"{stream.name}: {head.describe()}{more} waits for " + (
        ", ".join(awaited) or head.awaits()
    )


def others_may_call(own_threads: AbstractSet[int], waiting: int) -> bool:
    """True if a thread of this process may still make a driver call that ends a wait.

    Not the calling thread, and not `waiting` others, which wait for the same. What is sure is only
    that there is no such thread: one that sleeps for ever counts as one that may.
    """
    return len(sys._current_frames().keys() - own_threads - OURS.copy() - {get_ident()}) > waiting
