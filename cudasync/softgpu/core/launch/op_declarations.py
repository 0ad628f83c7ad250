"""Cellar. What one op declared to read and write, and what is known of what it has done.

A byte may be used as any range that covers it allows. Memory that the op's function allocates
itself is its own, and so is what a graph allocates and what modules keep for printf and malloc.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.interface.access_recording import Touch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudasync.softgpu.core.launch.undeclared_access import Declared
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.interface.access_recording import Recording


@dataclass(slots=True)
class Declaration:
    """What one op declares; `op` is its name and place, for people."""

    rows: Sequence[Declared]
    op: str
    # Addresses (start, end): of what the op's function has allocated, of what its copies and fills
    # have written, and of what its launches have, of which the latest may yet have to be asked.
    own: list[tuple[int, int]] = field(default_factory=list)
    filled: list[tuple[int, int]] = field(default_factory=list)
    stored: list[tuple[int, int]] = field(default_factory=list)
    launched: list[Recording] = field(default_factory=list)
    launches: list[Command] = field(default_factory=list)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, bool, bool]]:
        """The range, cut where what is declared changes: and may a piece be read, and written."""
        rows = [row for row in self.rows if row.start < end and start < row.end]
        edges = {edge for row in rows for edge in (row.start, row.end) if start < edge < end}
        for low, high in pairwise(sorted({start, end, *edges})):
            here = [row for row in rows if row.start <= low < row.end]
            yield low, high, any(r.reads for r in here), any(r.writes for r in here)

    def is_private(self, address: int, allocation: Allocation | None) -> bool:
        """True for what concerns no other op."""
        if any(start <= address < end for start, end in self.own):
            return True
        if allocation is None:
            return False
        if allocation.kind is MemoryKind.VARIABLE:
            # No text can name what a module keeps for printf and malloc.
            return " " in allocation.name
        # No op can name an array either, nor what an object keeps of itself.
        is_nameless = allocation.kind in (MemoryKind.ARRAY, MemoryKind.OBJECT)
        return is_nameless or allocation.keeper is not None

    def written_by_launches(self) -> list[tuple[int, int]]:
        """What launches have written, where old values are not to be read."""
        while self.launched:
            record = self.launched.pop()
            for index in range(record.count):
                if record.has_marks(index):
                    self.stored += record.touched(index, Touch.WRITTEN)
        return self.stored

    def may_hold_old(self, start: int, end: int) -> bool:
        """True if a copy that reads the range now reads what no earlier command has written."""
        if self.launches:
            # What they write is known when they have run.
            return False
        for low, high in sorted(self.filled):
            if low <= start < high:
                start = high
        return start < end
