"""Cellar. Compares an op's declared reads and writes with everything that its thread enqueues.

A client declares the accesses of an op before it calls the op's function, and withdraws the
declaration afterwards. Meanwhile each copy, fill and value of the thread is checked when it is
enqueued, and refused if it does more. Each launch is recorded, and fails if it has done more.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from cudasync.softgpu.core.driver_types.result_codes import ASSERT, NOT_PERMITTED, DriverFailure
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
from cudasync.softgpu.core.launch.undeclared_access import Access, sentence
from cudasync.softgpu.interface.access_recording import Recording, Touch

if TYPE_CHECKING:
    from cudasync.softgpu.core.launch.op_declarations import Declaration
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.modules.modules import Function
    from cudasync.softgpu.core.streams.commands import Command, Touched
    from cudasync.softgpu.interface.launch import AllocationSnapshot


class Watcher(Protocol):
    """Receives the recording of a launch."""

    def begin(self, allocations: AllocationSnapshot) -> Recording:
        """The recording for a launch that may touch these allocations."""

    def failure(self, function: Function) -> DriverFailure | None:
        """The failure of the finished launch; None if there is none."""

    def touched(self) -> Touched | None:
        """All memory that the launch has touched; None if unknown."""

    def of_grid_below(self, parameters: bytes) -> Watcher | None:
        """The watcher of a grid that a thread launched; None if none is needed, or not yet."""


class Expectation:
    """The declared accesses of one launch, and the recording of its real ones."""

    recording: Recording

    def __init__(self, machine: Machine, declaration: Declaration, parameters: bytes) -> None:
        self._machine = machine
        self._declaration = declaration
        self._parameters = parameters
        # The number of ranges that earlier copies have filled.
        self._filled = len(declaration.filled)

    def begin(self, allocations: AllocationSnapshot) -> Recording:
        """Watch the memory that the launch can touch but must not read, or must not write."""
        marked: list[tuple[int, int]] = []
        bare: list[tuple[int, int]] = []
        for start, end in allocations.ranges():
            for low, high, reads, writes in self._declaration.pieces(start, end):
                if not (reads and writes):
                    # Marks are needed only where the launch must not read old values.
                    (marked if writes else bare).append((low, high))
        self.recording = Recording(marked, bare)
        if marked:
            filled = self._declaration.filled[: self._filled]
            for start, end in filled + self._declaration.written_by_launches():
                self.recording.take_as_written(start, end)
        return self.recording

    def touched(self) -> None:
        """Unknown: allowed accesses were not recorded."""

    def of_grid_below(self, parameters: bytes) -> Expectation:
        """The grid belongs to the same op, which has declared the grid's accesses, too."""
        return Expectation(self._machine, self._declaration, parameters)

    def failure(self, function: Function) -> DriverFailure | None:
        """The first undeclared access, by arguments, then by address."""
        self._declaration.launched.append(self.recording)
        found: list[Access] = []
        for index, (start, end) in enumerate(self.recording.ranges):
            _, _, reads, writes = next(self._declaration.pieces(start, end))
            for kind, is_allowed in ((Touch.WRITTEN, writes), (Touch.READ_FIRST, reads)):
                first = None if is_allowed else self.recording.first(index, kind)
                allocation = self._machine.memory.find(start) if first is not None else None
                if first is not None and not self._is_excused(function, start, allocation, kind):
                    address = max(start, first.address)
                    who = f"kernel {function.name}, PTX line {first.line}"
                    found.append(Access(who, address, kind, allocation, (reads, writes)))
        if not found:
            return None
        said = self._declaration
        return DriverFailure(
            ASSERT, sentence(found, said.rows, said.op, function, self._parameters)
        )

    def _is_excused(
        self, function: Function, address: int, allocation: Allocation | None, kind: Touch
    ) -> bool:
        if self._declaration.is_private(address, allocation):
            return True
        return (
            kind is not Touch.WRITTEN
            and allocation is not None
            and function.module.variables.get(allocation.name) is allocation
            and _is_constant(function, allocation.name)
        )


def _is_constant(function: Function, name: str) -> bool:
    """True if no kernel of the module writes its variable of that name."""
    source = function.module.source
    # Imported late, because only declared accesses need the analysis.
    from cudasync.ptx.access_analysis.accesses import analyse

    return not any(
        name in symbols and symbols[name].writes
        for symbols in (analyse(source, each.name).symbols for each in source.kernels)
    )


class Expectations(threading.local):
    """What the calling thread may enqueue: the declaration of its innermost op."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._inside: list[Declaration | None] = []
        # The launches of issued ops.
        self._launched: list[Command] = []

    def begin(self, declaration: Declaration | None) -> None:
        """Make a declaration the current one; None stands for no declaration and no check.

        Runnable launches of earlier ops are run first. A violation then shows before another op
        reads undeclared writes, because that op does not wait for the launch.
        """
        executor = self._machine.executor
        if self._launched and not executor.is_busy_here():
            launched, self._launched = self._launched, []
            executor.finish_nowait(launched)
        self._inside.append(declaration)

    def end(self) -> None:
        """Restore the previous declaration."""
        declaration = self._inside.pop() if self._inside else None
        if declaration is not None:
            self._launched += declaration.launches

    @property
    def current(self) -> Declaration | None:
        return self._inside[-1] if self._inside else None

    def note_allocation(self, made: Allocation) -> None:
        """The calling thread has allocated memory."""
        if self.current is not None:
            self.current.own.append((made.start, made.end))

    def hold(self, command: Command) -> None:
        """Check a command that the calling thread enqueues.

        DriverFailure NOT_PERMITTED if the command does more than the op declares.
        """
        declaration = self.current
        # A command enqueued by an executing command does not belong to the thread's op.
        if declaration is None or self._machine.executor.is_busy_here():
            return
        if isinstance(command, KernelLaunch):
            command.expectation = Expectation(self._machine, declaration, command.parameters)
            declaration.launches.append(command)
            return
        touched = command.touched() if command.is_access else None
        if touched is None:
            return
        for ranges, kind in ((touched.reads, Touch.READ), (touched.writes, Touch.WRITTEN)):
            for start, end in ranges:
                self._check(command, declaration, start, end, kind)
        declaration.filled += touched.writes

    def _check(
        self, command: Command, declaration: Declaration, start: int, end: int, kind: Touch
    ) -> None:
        for low, high, reads, writes in declaration.pieces(start, end):
            if writes if kind is Touch.WRITTEN else reads:
                continue
            if writes and not declaration.may_hold_old(low, high):
                continue
            allocation = self._machine.memory.find(low)
            if not declaration.is_private(low, allocation):
                found = [Access(command.describe(), low, kind, allocation, (reads, writes))]
                raise DriverFailure(
                    NOT_PERMITTED, sentence(found, declaration.rows, declaration.op)
                )
