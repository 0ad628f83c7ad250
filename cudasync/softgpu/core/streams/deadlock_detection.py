"""Cellar. Walks over dependencies: which commands a wait needs, and why a wait cannot end.

Callers hold the executor's lock.
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
    """Mark the commands that `targets` need; the needs of marked commands are marked already."""
    stack = [target for target in targets if not target.is_wanted]
    while stack:
        command = stack.pop()
        if not command.is_wanted:
            command.is_wanted = True
            stack.extend(command.awaited())


def deadlock_report(left: Iterable[Command]) -> str:
    """A report on each stream with work, in the contexts concerned: what its head waits for."""
    contexts = {command.stream.context: None for command in needed(left)}
    lines = [_line(s) for c in contexts for s in list(c.streams) if s.pending or s.waits]
    return "deadlock: nothing is ready to run; " + "; ".join(lines)


def needed(targets: Iterable[Command]) -> Iterator[Command]:
    """The targets, and all their direct and indirect dependencies."""
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
        return f"{stream.name}: its wait for an event waits for " + ", ".join(awaited)
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

    The calling thread does not count, nor do `waiting` other threads in the same wait. Only the
    answer False is certain: a thread that sleeps for ever counts as one that may call.
    """
    return len(sys._current_frames().keys() - own_threads - OURS.copy() - {get_ident()}) > waiting
