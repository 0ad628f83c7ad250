"""Cellar. The declared reads and writes of one op, and its known accesses so far.

A byte may be used as any range that covers it allows. Memory that the op's function allocates is
the op's own. So is a graph's memory, and the memory that modules keep for printf and malloc.
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
    """The declaration of one op; `op` is its name and place, for people."""

    rows: Sequence[Declared]
    op: str
    # Address ranges (start, end): allocated by the op's function (`own`), written by its copies and
    # fills (`filled`), written by its launches (`stored`). `launched` holds recordings not yet in
    # `stored`.
    own: list[tuple[int, int]] = field(default_factory=list)
    filled: list[tuple[int, int]] = field(default_factory=list)
    stored: list[tuple[int, int]] = field(default_factory=list)
    launched: list[Recording] = field(default_factory=list)
    launches: list[Command] = field(default_factory=list)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, bool, bool]]:
        """The range, cut where the declaration changes: start, end, may be read, may be written."""
        rows = [row for row in self.rows if row.start < end and start < row.end]
        edges = {edge for row in rows for edge in (row.start, row.end) if start < edge < end}
        for low, high in pairwise(sorted({start, end, *edges})):
            here = [row for row in rows if row.start <= low < row.end]
            yield low, high, any(r.reads for r in here), any(r.writes for r in here)

    def is_private(self, address: int, allocation: Allocation | None) -> bool:
        """True for memory that no other op uses."""
        if any(start <= address < end for start, end in self.own):
            return True
        if allocation is None:
            return False
        if allocation.kind is MemoryKind.VARIABLE:
            # A name with a space is a module's memory for printf and malloc, not of the PTX text.
            return " " in allocation.name
        # An op cannot name an array, nor the record of a texture or surface object.
        is_nameless = allocation.kind in (MemoryKind.ARRAY, MemoryKind.OBJECT)
        return is_nameless or allocation.keeper is not None

    def written_by_launches(self) -> list[tuple[int, int]]:
        """Ranges that launches have written, where old values must not be read."""
        while self.launched:
            record = self.launched.pop()
            for index in range(record.count):
                if record.has_marks(index):
                    self.stored += record.touched(index, Touch.WRITTEN)
        return self.stored

    def may_hold_old(self, start: int, end: int) -> bool:
        """True if a copy that reads the range now would read bytes that the op has not written."""
        if self.launches:
            # The writes of a launch are known only after its run.
            return False
        for low, high in sorted(self.filled):
            if low <= start < high:
                start = high
        return start < end
