"""Floor 2. The predecessors of an op, from the histories that it touches.

A read comes after the last writer (RAW). A write comes after the last writer (WAW) and after the
readers since (WAR). An op that is over orders nothing; if it failed, it poisons its readers.
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
    """The unfinished predecessors of an op; and its sources, the writers of its reads.

    A history read and written is in both arguments. A finished source is listed only if it poisons.
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
                # It ends after the writer. (A reader on a lost device ends at once.)
                is_behind = is_behind or reader.__class__ is PlainOp
        writer = history.writer
        if not is_behind and writer is not None and not writer.finished:
            before[writer] = None
    return before, sources
