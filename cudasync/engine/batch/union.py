"""Floor 2. What steps access that are taken as one op: the union, in their order.

What a step overwrites is the batch's own from then on: a later step that reads it reads nothing
from outside, so the batch neither needs its old value nor is poisoned with that. Byte ranges are
taken apart for this where they overlap in part, and else stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.hazards.cover import Cover
from cudasync.engine.hazards.interval_map import Everywhere, Region

if TYPE_CHECKING:
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.variable import Var


class Union:
    """The accesses of steps that were added in their order."""

    __slots__ = (
        "_covered",
        "_everywhere",
        "_read",
        "_variables_read",
        "_variables_written",
        "_written",
    )

    def __init__(self) -> None:
        # What is read before a step of these writes it.
        self._read: dict[Region, None] = {}
        self._variables_read: dict[Var, None] = {}
        # What is written, read before or not.
        self._written: dict[Region, None] = {}
        self._variables_written: dict[Var, None] = {}
        # All memory, whoever's: it stays what it is, and covers nothing. As a plain range it would
        # name memory that is nobody's yet, which would inherit whatever befalls it.
        self._everywhere: dict[Region, None] = {}
        self._covered = Cover()

    def add(self, accesses: Accesses) -> None:
        """Add those of the next step."""
        (only_read, updated, written), read, also_written = accesses
        for region in only_read + updated:
            if region.__class__ is Everywhere:
                self._everywhere[region] = None
            elif region not in self._written:
                self._read.update(dict.fromkeys(self._covered.without(region)))
        for region in updated + written:
            if region.__class__ is Everywhere:
                continue
            # A plain one: what lies in the gaps of a view was read above.
            self._written[Region(*region)] = None
            self._covered.add(region)
        for variable in read:
            if variable not in self._variables_written:
                self._variables_read[variable] = None
        self._variables_written.update(dict.fromkeys(also_written))

    def accesses(self) -> Accesses:
        """Those of all steps as of one op."""
        only_read = tuple([each for each in self._read if each not in self._written])
        updated = tuple([each for each in self._read if each in self._written])
        written = tuple([each for each in self._written if each not in self._read])
        if self._everywhere:
            # At the end of what is written, where the combiner looks for it; and read, too.
            everywhere = tuple(self._everywhere)
            updated += everywhere
            written += everywhere if written else ()
        variables = tuple(self._variables_read), tuple(self._variables_written)
        return (only_read, updated, written), *variables
