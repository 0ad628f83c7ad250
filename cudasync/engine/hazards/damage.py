"""Floor 2. Damage: what of its writes a failed op has left wrong, where that is not all of them.

An op of several steps runs those that do not need what another failed to write (a segment of a
graph). Who reads only what was written is not poisoned: what each of its bytes and variables comes
from is noted in its plan, as its `Origins`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudasync.engine.hazards.cover import Cover

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeGuard

    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.history import History
    from cudasync.engine.hazards.interval_map import Entry, IntervalMap
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.op import Op


class Origins(NamedTuple):
    """What an op reads, as its combiner found it: the histories tell who wrote it."""

    variables: tuple[tuple[Var, Op | None], ...]
    regions: tuple[tuple[int, int, Op | None], ...]

    @classmethod
    def of(cls, op: Op, variables: Sequence[History], ranges: IntervalMap | None) -> Origins:
        """Those of `op`, from the histories of the variables that it reads, and the ranges, which
        are split where it reads."""
        pairs = zip(op._reads, variables, strict=True)
        found: list[tuple[int, int, Op | None]] = []
        if ranges is not None and op._regions is not None:
            only_read, updated, _ = op._regions
            for region in only_read + updated:
                first, last = ranges.touched(region)
                found += [_origin(entry) for entry in ranges.entries[first:last]]
        return cls(tuple((each, history.writer) for each, history in pairs), tuple(found))

    def is_hit(self, source: Op) -> bool:
        """True if something comes from `source`, which failed, and was not written by it."""
        damage = source._damage
        if damage is None:
            return True
        return any(
            writer is source and damage.has_variable(each) for each, writer in self.variables
        ) or any(
            writer is source and damage.touches(low, high) for low, high, writer in self.regions
        )


NOWHERE = Origins((), ())


class Damage:
    """Variables and bytes that do not have the value that they should."""

    __slots__ = ("_bytes", "_variables")

    def __init__(self) -> None:
        self._variables: set[Var] = set()
        # A set: what a program that is launched again and again leaves wrong does not grow.
        self._bytes = Cover()

    @classmethod
    def before(cls, origins: Origins) -> Damage:
        """What is wrong of what an op reads."""
        found = cls()
        for each, writer in origins.variables:
            if _has_failed(writer) and (not writer._damage or writer._damage.has_variable(each)):
                found._variables.add(each)
        for low, high, writer in origins.regions:
            if _has_failed(writer):
                damage = writer._damage
                for part in damage._bytes.within((low, high)) if damage else [(low, high)]:
                    found._bytes.add(part)
        return found

    def has_variable(self, variable: Var) -> bool:
        return variable in self._variables

    def touches(self, start: int, end: int) -> bool:
        return self._bytes.touches((start, end))

    def reaches(self, accesses: Accesses) -> bool:
        """True if a step that accesses this reads something that is damaged."""
        (only_read, updated, _), read, _ = accesses
        return not self._variables.isdisjoint(read) or any(
            self.touches(*region) for region in only_read + updated
        )

    def fail(self, accesses: Accesses) -> None:
        """A step that accesses this has failed, or was left out."""
        (_, updated, written), _, also_written = accesses
        self._variables.update(also_written)
        for region in updated + written:
            self._bytes.add(region)

    def heal(self, accesses: Accesses) -> None:
        """A step that accesses this has run: what it overwrites is as it should be."""
        (_, _, written), _, also_written = accesses
        self._variables.difference_update(also_written)
        for region in written:
            self._bytes.remove(region)


def _origin(entry: Entry) -> tuple[int, int, Op | None]:
    low, high, history = entry
    return low, high, history.writer


def _has_failed(writer: Op | None) -> TypeGuard[Op]:
    return writer is not None and writer.is_poisoned
