"""Four shapes of dependency, in push order, on which every engine is measured.

An op is (reads, writes), tuples of variable numbers. Shapes, sizes and the seed are those of the
measurements on which the design was decided, so that numbers can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 20240601
MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Workload:
    """Ops in push order over `variables` variables."""

    name: str
    variables: int
    ops: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """For each op, the earlier ops that it must follow.

        RAW: a read follows the last write. WAR and WAW: a write follows the reads since the last
        write or, if there are none, that write (the reads follow it already).
        """
        last_write: list[int | None] = [None] * self.variables
        readers: list[list[int]] = [[] for _ in range(self.variables)]
        found: list[list[int]] = []
        for number, (reads, writes) in enumerate(self.ops):
            before: set[int] = set()
            for variable in reads:
                writer = last_write[variable]
                if writer is not None:
                    before.add(writer)
                readers[variable].append(number)
            for variable in writes:
                writer = last_write[variable]
                if readers[variable]:
                    before.update(readers[variable])
                elif writer is not None:
                    before.add(writer)
                last_write[variable] = number
                readers[variable] = []
            before.discard(number)
            found.append(sorted(before))
        return found

    @cached_property
    def successors(self) -> list[list[int]]:
        """`predecessors`, reversed."""
        found: list[list[int]] = [[] for _ in self.ops]
        for number, before in enumerate(self.predecessors):
            for earlier in before:
                found[earlier].append(number)
        return found


def indep(count: int) -> Workload:
    """Ops without variables: no op waits."""
    return Workload("indep", 0, (((), ()),) * count)


def chain(count: int) -> Workload:
    """Every op writes the one variable, so each waits for the previous one."""
    return Workload("chain", 1, (((), (0,)),) * count)


def random(count: int, variables: int) -> Workload:
    """Each op reads two variables and writes a third, drawn with a fixed seed."""
    draw = Random(SEED)
    ops = []
    for _ in range(count):
        first, second, third = draw.sample(range(variables), 3)
        ops.append(((first, second), (third,)))
    return Workload("random", variables, tuple(ops))


def fan(width: int, rounds: int) -> Workload:
    """Rounds of one op, then `width` ops that read its result, then one that reads theirs."""
    middle = tuple(range(1, width + 1))
    one_round = [
        ((), (0,)),
        *(((0,), (variable,)) for variable in middle),
        (middle, (0,)),
    ]
    return Workload("fan", width + 1, tuple(one_round * rounds))


def twice(workload: Workload) -> Workload:
    """Two copies without a common variable, their ops in turn."""
    ops = []
    for each in workload.ops:
        other = tuple(tuple(number + workload.variables for number in names) for names in each)
        ops += [each, other]
    return Workload(f"{workload.name}, twice", 2 * workload.variables, tuple(ops))


class Tally:
    """Ops whose result shows their order: all contenders must have the same checksum.

    Each op mixes its number and its inputs into its outputs. So an op that is lost, repeated or too
    early changes the result. An op without variables records its number.
    """

    def __init__(self, workload: Workload) -> None:
        self._values = [0] * workload.variables
        self._free = [0] * len(workload.ops)
        self.functions: list[Callable[[], None]] = [
            self._function(number, reads, writes)
            for number, (reads, writes) in enumerate(workload.ops)
        ]

    def _function(
        self, number: int, reads: tuple[int, ...], writes: tuple[int, ...]
    ) -> Callable[[], None]:
        values, free = self._values, self._free

        def op() -> None:
            total = number + 1
            for variable in reads:
                total = (total * 6364136223846793005 + values[variable]) & MASK
            for variable in writes:
                values[variable] = (values[variable] * 1442695040888963407 + total) & MASK
            if not writes:
                free[number] += total

        return op

    def checksum(self) -> int:
        """A checksum of everything that the ops did."""
        return crc32(repr((self._values, self._free)).encode())


class Census:
    """Ops that count, for several pushing threads, where many orders are right.

    Each op counts itself, and adds one to all its outputs. This is a read, a step of Python and a
    write back, so two writers at once would lose a count.
    """

    def __init__(self, workload: Workload) -> None:
        self._runs = [0] * len(workload.ops)
        self._values = [0] * workload.variables
        self.functions: list[Callable[[], None]] = [
            self._function(number, writes) for number, (_, writes) in enumerate(workload.ops)
        ]

    def _function(self, number: int, writes: tuple[int, ...]) -> Callable[[], None]:
        runs, values = self._runs, self._values

        def op() -> None:
            seen = [values[variable] for variable in writes]
            runs[number] += 1
            for variable, value in zip(writes, seen, strict=True):
                values[variable] = value + 1

        return op

    def checksum(self) -> int:
        """A checksum of each op's runs and each variable's writes."""
        return crc32(repr((self._runs, self._values)).encode())
