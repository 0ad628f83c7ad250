"""Cellar. Repair of the executor's bookkeeping after an interrupt.

A KeyboardInterrupt may come behind any call. Callers hold the executor's lock.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING

from cudasync.softgpu.core.streams.commands import NO_COMMANDS
from cudasync.softgpu.core.streams.deadlock_detection import needed

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from cudasync.softgpu.core.streams.commands import Command

_BY_AGE = attrgetter("serial")


def mend(
    commands: Iterable[Command], ready: list[Command], others: Iterable[Container[Command]]
) -> bool:
    """Add to `ready` the runnable commands that are neither in `ready` nor in `others`.

    True if there are any.
    """
    places = (ready, *others)
    has_mended = False
    for command in commands:
        if command.is_done or any(command in place for place in places):
            continue
        pending = command.stream.pending
        if not (pending and pending[0] is command):
            continue
        command.missing = sum(not other.is_done for other in command.awaited())
        if not command.missing:
            insort(ready, command, key=_BY_AGE)
            has_mended = True
    return has_mended


def finish_again(
    command: Command, ready: list[Command], others: Iterable[Container[Command]]
) -> None:
    """Finish a command whose bookkeeping was interrupted after its run: it must not run again."""
    command.is_done = True
    pending = command.stream.pending
    if pending and pending[0] is command:
        pending.popleft()
    mend([*command.dependents, *list(pending)[:1]], ready, others)
    command.before = None
    command.dependents = command.dependencies = NO_COMMANDS


def rescue(
    left: Iterable[Command], ready: list[Command], others: Iterable[Container[Command]]
) -> bool:
    """Mend the commands that `left` need, and mark them as wanted; False if all was right."""
    commands = [command for command in needed(left) if not command.is_done]
    was_forgotten = not all(command.is_wanted for command in commands)
    for command in commands:
        command.is_wanted = True
    return mend(commands, ready, others) or was_forgotten
