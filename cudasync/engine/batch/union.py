"""Floor 2. The union of the accesses of a batch's steps, in their order.

Data that a step overwrites is internal to the batch from then on. A later step that reads it reads
nothing from outside, so the batch does not need the old value and is not poisoned by it. For this,
partly overlapping byte ranges are split; others stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.hazards.byte_ranges import Cover
from cudasync.engine.hazards.interval_map import Everywhere, Region

if TYPE_CHECKING:
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.variable import Var


class Union:
    """The union of the accesses of steps, added in their order."""

    __slots__ = (
        "_covered",
        "_everywhere",
        "_read",
        "_variables_read",
        "_variables_written",
        "_written",
    )

    def __init__(self) -> None:
        # Data read before a step writes it.
        self._read: dict[Region, None] = {}
        self._variables_read: dict[Var, None] = {}
        # Data written, read before or not.
        self._written: dict[Region, None] = {}
        self._variables_written: dict[Var, None] = {}
        # `Everywhere` regions stay separate and cover nothing. As a plain range, such a region
        # would name unallocated memory, and later allocations would inherit its history.
        self._everywhere: dict[Region, None] = {}
        self._covered = Cover()

    def add(self, accesses: Accesses) -> None:
        """Add the accesses of the next step."""
        (only_read, updated, written), read, also_written = accesses
        for region in only_read + updated:
            if region.__class__ is Everywhere:
                self._everywhere[region] = None
            elif region not in self._written:
                self._read.update(dict.fromkeys(self._covered.without(region)))
        for region in updated + written:
            if region.__class__ is Everywhere:
                continue
            # A plain region: the gaps of a view were read above.
            self._written[Region(*region)] = None
            self._covered.add(region)
        for variable in read:
            if variable not in self._variables_written:
                self._variables_read[variable] = None
        self._variables_written.update(dict.fromkeys(also_written))

    def accesses(self) -> Accesses:
        """The accesses of all steps as one op."""
        only_read = tuple([each for each in self._read if each not in self._written])
        updated = tuple([each for each in self._read if each in self._written])
        written = tuple([each for each in self._written if each not in self._read])
        if self._everywhere:
            # At the end of the writes, where the combiner looks for it; it is read, too.
            everywhere = tuple(self._everywhere)
            updated += everywhere
            written += everywhere if written else ()
        variables = tuple(self._variables_read), tuple(self._variables_written)
        return (only_read, updated, written), *variables
