"""Floor 2. Damage: the part of its writes that a partly failed op has left wrong.

In an op of several steps (a segment of a graph), steps that do not need the data of a failed step
still run. An op that reads only intact data is not poisoned: its plan notes the writer of each of
its bytes and variables, as its `Origins`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudasync.engine.hazards.byte_ranges import Cover

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeGuard

    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.history import History
    from cudasync.engine.hazards.interval_map import Entry, IntervalMap
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.op import Op


class Origins(NamedTuple):
    """The data that an op reads, with the writer of each part from its history."""

    variables: tuple[tuple[Var, Op | None], ...]
    regions: tuple[tuple[int, int, Op | None], ...]

    @classmethod
    def of(cls, op: Op, variables: Sequence[History], ranges: IntervalMap | None) -> Origins:
        """The origins of `op`, from the histories of its read variables, and from the ranges, which
        are split at the ends of its reads."""
        pairs = zip(op._reads, variables, strict=True)
        found: list[tuple[int, int, Op | None]] = []
        if ranges is not None and op._regions is not None:
            only_read, updated, _ = op._regions
            for region in only_read + updated:
                first, last = ranges.touched(region)
                found += [_origin(entry) for entry in ranges.entries[first:last]]
        return cls(tuple((each, history.writer) for each, history in pairs), tuple(found))

    def is_hit(self, source: Op) -> bool:
        """True if some data should come from `source`, which failed, and is damaged."""
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
    """Variables and bytes with a wrong value."""

    __slots__ = ("_bytes", "_variables")

    def __init__(self) -> None:
        self._variables: set[Var] = set()
        # A set, so that repeated launches of a program do not grow it.
        self._bytes = Cover()

    @classmethod
    def before(cls, origins: Origins) -> Damage:
        """The damage in the data that an op reads."""
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

    def left_out(self, steps: Iterable[Accesses]) -> frozenset[int]:
        """Walk over steps with these accesses, which run one after the other, except those that
        need damaged data. Returns the positions of these, and becomes the damage behind all."""
        found = set()
        for at, accesses in enumerate(steps):
            if self.reaches(accesses):
                self.fail(accesses)
                found.add(at)
            else:
                self.heal(accesses)
        return frozenset(found)

    def copy(self) -> Damage:
        """The same damage, which changes by itself from now on."""
        made = Damage()
        made._variables |= self._variables
        for each in self._bytes:
            made._bytes.add(each)
        return made

    def has_variable(self, variable: Var) -> bool:
        return variable in self._variables

    def touches(self, start: int, end: int) -> bool:
        return self._bytes.touches((start, end))

    def reaches(self, accesses: Accesses) -> bool:
        """True if a step with these accesses reads damaged data."""
        (only_read, updated, _), read, _ = accesses
        return not self._variables.isdisjoint(read) or any(
            self.touches(*region) for region in only_read + updated
        )

    def fail(self, accesses: Accesses) -> None:
        """A step with these accesses has failed, or was left out."""
        (_, updated, written), _, also_written = accesses
        self._variables.update(also_written)
        for region in updated + written:
            self._bytes.add(region)

    def heal(self, accesses: Accesses) -> None:
        """A step with these accesses has run: the data that it overwrites is intact."""
        (_, _, written), _, also_written = accesses
        self._variables.difference_update(also_written)
        for region in written:
            self._bytes.remove(region)

    def take(self, other: Damage, accesses: Accesses) -> None:
        """Steps with these accesses have run, and `other` says what is damaged of their writes."""
        (_, updated, written), _, also_written = accesses
        self._variables.difference_update(also_written)
        self._variables.update(other._variables.intersection(also_written))
        for region in updated + written:
            self._bytes.remove(region)
            for part in other._bytes.within(region):
                self._bytes.add(part)


def _origin(entry: Entry) -> tuple[int, int, Op | None]:
    low, high, history = entry
    return low, high, history.writer


def _has_failed(writer: Op | None) -> TypeGuard[Op]:
    return writer is not None and writer.is_poisoned
