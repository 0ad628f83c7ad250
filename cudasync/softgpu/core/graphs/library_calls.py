"""Cellar. Commands of libraries above the driver: a function over ranges of memory.

As for a copy, the ranges are checked at the call and again when the command executes. So memory
freed meanwhile is a fault and not a silent access. The function runs in stream order, in the
executing thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cudasync.softgpu.core.driver_types.result_codes import (
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    UNKNOWN,
    DriverFailure,
)
from cudasync.softgpu.core.driver_types.virtual_clock import copy_us
from cudasync.softgpu.core.graphs.node_parameters import NodeType, Work
from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.copy_commands import Place
    from cudasync.softgpu.core.streams.streams import Stream


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes at a place."""

    place: Place
    size_bytes: int

    @property
    def range(self) -> tuple[int, int]:
        return self.place.address, self.place.address + self.size_bytes


@dataclass(frozen=True, slots=True)
class Routine:
    """A library call: its name, the memory that it reads and writes, and the function.

    With `is_open`, the function also accesses addresses that it finds in memory.
    """

    name: str
    reads: Sequence[Span]
    writes: Sequence[Span]
    function: Callable[[], None]
    is_open: bool = False


class LibraryCall(Command):
    """A routine in a stream."""

    __slots__ = ("routine",)

    def __init__(self, stream: Stream, routine: Routine) -> None:
        super().__init__(stream)
        self.routine = routine

    def run(self) -> Step:
        routine = self.routine
        spans = [*routine.reads, *routine.writes]
        if any(span.place.is_lost for span in spans):
            return Step.DONE
        for span in spans:
            span.place.check(span.size_bytes, routine.name)
        try:
            routine.function()
        except DriverFailure as failure:
            # The function found an invalid address in memory.
            code = ILLEGAL_ADDRESS if failure.code == INVALID_VALUE else failure.code
            raise DriverFailure(code, f"{routine.name}: {failure.detail}") from None
        except Exception as problem:
            raise DriverFailure(UNKNOWN, f"{routine.name}: {problem!r}") from problem
        return Step.DONE

    @property
    def cost_us(self) -> float:
        return copy_us(sum(span.size_bytes for span in self.routine.writes))

    def touched(self) -> Touched | None:
        if self.routine.is_open:
            return None
        reads = [span.range for span in self.routine.reads]
        return Touched(reads, [span.range for span in self.routine.writes])

    def describe(self) -> str:
        return self.routine.name


@dataclass(frozen=True, slots=True)
class LibraryWork(Work):
    """A routine as a graph node; queries see a host function."""

    kind: ClassVar[NodeType] = NodeType.HOST

    routine: Routine

    def command(self, stream: Stream) -> Command:
        return LibraryCall(stream, self.routine)

    def describe(self) -> str:
        return self.routine.name


def enqueue_routine(
    machine: Machine,
    stream: Stream,
    name: str,
    function: Callable[[], None],
    *,
    reads: Sequence[tuple[int, int]] = (),
    writes: Sequence[tuple[int, int]] = (),
    is_open: bool = False,
) -> LibraryCall:
    """Enqueue a library's routine that reads and writes these ranges (address, bytes).

    DriverFailure INVALID_VALUE if a range is not device memory.
    """
    find = machine.memory.place
    read = [Span(find(address, size), size) for address, size in reads if size]
    written = [Span(find(address, size), size) for address, size in writes if size]
    machine.transfers.check_access(stream.context, *(span.place for span in (*read, *written)))
    command = LibraryCall(stream, Routine(name, read, written, function, is_open))
    machine.executor.enqueue(command)
    return command
