"""Floor 2. What an op has to come after, from the histories of what it touches.

A read comes after the last writer (RAW); a write comes after it, too (WAW), and after the readers
since (WAR). An op that is over orders nothing; if it failed, it poisons who reads what it wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.op_classes import PlainOp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.engine.hazards.history import History
    from cudasync.engine.op import Op


def predecessors(
    reads: Iterable[History], writes: Iterable[History]
) -> tuple[dict[Op, None], dict[Op, None]]:
    """The unfinished ops that an op comes after; and its sources, the writers of what it reads.

    What is read and written is in both. A source that is over is told only if it poisons.
    """
    before: dict[Op, None] = {}
    sources: dict[Op, None] = {}
    for history in reads:
        writer = history.writer
        if writer is not None:
            if not writer.finished:
                before[writer] = sources[writer] = None
            elif writer.is_poisoned:
                sources[writer] = None
    for history in writes:
        is_behind = False
        for reader in history.readers:
            if not reader.finished:
                before[reader] = None
                # It ends after the writer. (One on a device that is lost ends at once.)
                is_behind = is_behind or reader.__class__ is PlainOp
        writer = history.writer
        if not is_behind and writer is not None and not writer.finished:
            before[writer] = None
    return before, sources
