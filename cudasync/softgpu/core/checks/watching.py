"""Cellar. What a command has done to memory, taken apart as a check needs it.

Kernels run as twins that were compiled to be recorded. Of an allocation that a kernel did not touch
nothing is looked at, so what is allocated costs nothing; marks are pages that come when touched.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from cudasync.softgpu.core.checks.kernel_races import ThreadWatch
from cudasync.softgpu.core.checks.memory import is_strong
from cudasync.softgpu.core.exploration.watching import Watch, Watching
from cudasync.softgpu.core.launches import KernelLaunch
from cudasync.softgpu.recording import KINDS, Touch
from cudasync.softgpu.suspicion import Suspicion
from cudasync.softgpu.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.ptx import ir
    from cudasync.softgpu.core.checks.findings import Findings
    from cudasync.softgpu.core.commands import Command
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.modules import Function, Module
    from cudasync.softgpu.recording import Recording
    from cudasync.softgpu.windows import EarlyRead, Stranger

_MOST_BYTES: Final = 4 << 30
_MEETINGS: Final = ("shfl", "vote", "match", "redux", "elect")


class Done(NamedTuple):
    """Reads or writes of a command. `line` is the PTX line of the first of them in the allocation.

    `early` are bytes that a kernel read before it had written them.
    """

    ranges: list[tuple[int, int]]
    is_write: bool
    is_strong: bool = False
    line: int = 0
    early: list[tuple[int, int]] = []  # noqa: RUF012  # Nobody changes it.


class LaunchWatching(Watching):
    """Has launches recorded, whatever is allocated."""

    most_bytes = _MOST_BYTES

    def __init__(self, machine: Machine, findings: Findings, kinds: frozenset[str]) -> None:
        super().__init__(machine)
        self._findings = findings
        # What is looked for: without races and unwritten memory a kernel is recorded where its
        # warps meet, and then not what it accesses.
        self._kinds = kinds
        self._meetings: dict[Module, bool] = {}
        self._suspicions: dict[Function, Suspicion] = {}

    def watch(self, command: Command) -> None:
        if not isinstance(command, KernelLaunch) or command.expectation is not None:
            return
        has_accesses = bool(self._kinds & {"race", "init"})
        meets = "sync" in self._kinds and self._meets(command.function.module)
        if not has_accesses and not meets:
            return
        super().watch(command)
        watch = _watch_of(command)
        if watch is not None:
            watch.has_accesses = has_accesses
            if "init" in self._kinds or meets:
                watch.windows = Windows()

    def _meets(self, module: Module) -> bool:
        found = self._meetings.get(module)
        if found is None:
            bodies = (each.body for each in module.source.functions)
            found = self._meetings[module] = any(map(_has_members, chain.from_iterable(bodies)))
        return found

    def _watch(self, command: KernelLaunch, ranges: list[tuple[int, int]]) -> None:
        """Threads are held against each other where they may race, by what the text computes."""
        twin = self._twin(command.function, races=True) if "race" in self._kinds else None
        if twin is not None:
            suspicion = self._suspicions.get(twin)
            if suspicion is None:
                suspicion = self._suspicions[twin] = Suspicion(twin.kernel)
            plan = command.plan
            watched = suspicion.of(plan.grid, plan.block, command.parameters, ranges)
            if watched or twin.kernel.shares(plan.block):
                self._exchange(command, twin, ThreadWatch(command, self._findings, watched))
                return
        super()._watch(command, ranges)


def done_by(command: Command) -> Iterator[Done]:
    """What the command did, reads first; nothing where it is not known."""
    if isinstance(command, KernelLaunch):
        watch = command.expectation
        if isinstance(watch, Watch):
            yield from _recorded(watch)
        return
    touched = command.touched()
    if touched is not None:
        strong = is_strong(command)
        if touched.reads:
            yield Done(list(touched.reads), is_write=False, is_strong=strong)
        if touched.writes:
            yield Done(list(touched.writes), is_write=True, is_strong=strong)


def _watch_of(command: KernelLaunch) -> Watch | None:
    return command.expectation if isinstance(command.expectation, Watch) else None


def _has_members(instruction: ir.Instruction) -> bool:
    """Whether lanes of a warp meet there that a mask names."""
    if "sync" not in instruction.modifiers:
        return False
    is_bar = instruction.opcode in ("bar", "barrier")
    return "warp" in instruction.modifiers if is_bar else instruction.opcode in _MEETINGS


def strangers(command: KernelLaunch) -> list[Stranger]:
    """The threads that met others of their warp as none of them, one for each line."""
    watch = _watch_of(command)
    windows = watch.windows if watch is not None else None
    return list({each.line: each for each in windows.strangers()}.values()) if windows else []


def early_reads(command: KernelLaunch) -> list[EarlyRead]:
    """What a kernel read of shared and local memory that nobody had written, by line."""
    watch = _watch_of(command)
    windows = watch.windows if watch is not None else None
    return list({each.line: each for each in windows.early()}.values()) if windows else []


def strong_reads(command: Command) -> list[tuple[int, int]]:
    """The words by which a command that waited may have learnt that others were done."""
    if not isinstance(command, KernelLaunch):
        touched = command.touched()
        return [] if touched is None else list(touched.reads)
    return [r for each in done_by(command) if each.is_strong for r in each.ranges]


def _recorded(watch: Watch) -> Iterator[Done]:
    record = watch.recording
    for index in range(record.count):
        read, written, early = (record.first(index, kind) for kind in KINDS)
        if read is not None:
            yield from _of_a_kind(record, index, Touch.READ, read.line)
        if early is not None:
            found = record.touched(index, Touch.READ_FIRST)
            yield Done([], is_write=False, line=early.line, early=found)
        if written is not None:
            yield from _of_a_kind(record, index, Touch.WRITTEN, written.line)


def _of_a_kind(record: Recording, index: int, kind: Touch, line: int) -> Iterator[Done]:
    """The strong accesses of a kind, then the plain ones."""
    is_write = kind is Touch.WRITTEN
    plain = Touch.PLAIN_WRITE if is_write else Touch.PLAIN_READ
    if ranges := record.touched(index, kind, plain):
        yield Done(ranges, is_write, is_strong=True, line=line)
    if ranges := record.touched(index, plain):
        yield Done(ranges, is_write, line=line)
