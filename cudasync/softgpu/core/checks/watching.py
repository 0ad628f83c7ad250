"""Cellar. The accesses of a finished command, in the form that a check needs.

Kernels run as twins that were compiled to be recorded. Allocations that a kernel did not touch are
skipped, so allocated memory costs nothing; the pages of marks come when they are touched.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from cudasync.softgpu.core.checks.checked_watch import CheckedWatch
from cudasync.softgpu.core.checks.convergence import Convergence
from cudasync.softgpu.core.checks.kernel_races import ThreadWatch
from cudasync.softgpu.core.checks.memory import is_strong
from cudasync.softgpu.core.checks.race_suspicion import Suspicion
from cudasync.softgpu.core.checks.unwritten_reach import Needed, UnwrittenReach
from cudasync.softgpu.core.exploration.kernel_footprints import Watch, Watching
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
from cudasync.softgpu.interface.access_recording import KINDS, Touch
from cudasync.softgpu.interface.byte_ranges import NOTHING, ByteRanges, union
from cudasync.softgpu.interface.convergence_records import has_members
from cudasync.softgpu.interface.initialisation_windows import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.ptx import ir
    from cudasync.softgpu.core.checks.convergence import Told
    from cudasync.softgpu.core.checks.findings import Findings
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.modules.modules import Function, Module
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.interface.initialisation_windows import EarlyRead
    from cudasync.softgpu.interface.launch import Dim3
    from cudasync.softgpu.interface.mark_runs import MarkRuns

_MOST_BYTES: Final = 4 << 30
# The kinds of findings that running kernels report.
_OF_THREADS: Final = ("race", "init", "sync")


class Done(NamedTuple):
    """Reads or writes of a command. `line` is the PTX line of the first access to the allocation.

    `early` are bytes that a kernel read before it had written them.
    """

    ranges: ByteRanges
    is_write: bool
    is_strong: bool = False
    line: int = 0
    early: ByteRanges = NOTHING


class LaunchWatching(Watching):
    """Records launches, also with more allocated memory than an exploration records."""

    most_bytes = _MOST_BYTES

    def __init__(
        self,
        machine: Machine,
        findings: Findings,
        kinds: frozenset[str],
        unwritten: Callable[[list[tuple[int, int]]], list[tuple[int, int]]],
    ) -> None:
        """`unwritten` returns those of some ranges that may have unwritten bytes."""
        super().__init__(machine)
        self._findings = findings
        # The kinds of the check. For `sync` alone, a kernel with barriers or meetings runs a twin
        # without records of accesses.
        self._kinds = kinds
        self._meetings: dict[Module, bool] = {}
        self._suspicions: dict[Function, Suspicion] = {}
        self._unwritten = unwritten
        self._reach = UnwrittenReach(machine.memory.find)

    def watch(self, command: Command) -> bool:
        if not isinstance(command, KernelLaunch) or command.expectation is not None:
            return True
        has_accesses = bool(self._kinds & {"race", "init"})
        if not has_accesses and not self._synchronises(command.function.module):
            return True
        is_watched = super().watch(command)
        if reason := self._not_checked(command, is_watched=is_watched):
            kinds = ", ".join(each for each in _OF_THREADS if each in self._kinds)
            self._findings.pass_over(f"{kinds} of {command.describe()}: {reason}")
        return is_watched

    def _not_checked(self, command: KernelLaunch, *, is_watched: bool) -> str:
        """Why this launch is not checked, or its threads are not; "" if they are."""
        if not command.function.kernel.sees_threads:
            return (
                "its module has an instruction that only the plain lowering supports, so only "
                "reads and writes of global memory are seen"
            )
        if not is_watched:
            size = f"{self.most_bytes >> 30} GiB"
            return f"more than {size} are allocated, or no recording variant of it compiles"
        return ""

    def _synchronises(self, module: Module) -> bool:
        """Whether threads of the module may miss each other, judged from its text alone."""
        found = self._meetings.get(module)
        if found is None:
            bodies = (each.body for each in module.source.functions)
            found = self._meetings[module] = any(map(_meets, chain.from_iterable(bodies)))
        return found and "sync" in self._kinds

    def _watch(self, command: KernelLaunch, ranges: list[tuple[int, int]]) -> bool:
        """Choose the twin of a launch: the one with no more than this launch needs."""
        function, block = command.function, command.plan.block
        convergence = self._converges(function, block)
        windows = "init" in self._kinds
        if "race" in self._kinds:
            return self._watch_all(command, ranges, convergence=convergence)
        needed = Needed([], reads=False)
        if windows:
            needed = self._reach.needed(command, self._unwritten(ranges))
            twin = self._twin(function, record=False, windows=True)
            windows = twin is not None and twin.kernel.has_windows(block)
        record = bool(needed.ranges)
        if not (record or windows or convergence):
            return True
        twin = self._twin(
            function, record=record, reads=needed.reads, windows=windows, convergence=convergence
        )
        if twin is None or self._are_too_large(needed.ranges):
            return False
        watch = self._equipped(CheckedWatch(), convergence=convergence)
        watch.ranges = needed.ranges
        self._exchange(command, twin, watch)
        return True

    def _watch_all(
        self, command: KernelLaunch, ranges: list[tuple[int, int]], *, convergence: bool
    ) -> bool:
        """Watch all memory; threads are compared only where the text allows races."""
        function, plan, windows = command.function, command.plan, "init" in self._kinds
        if self._are_too_large(ranges):
            return False
        twin = self._twin(function, races=True, windows=windows, convergence=convergence)
        is_order_free = False
        if twin is not None:
            suspicion = self._suspicions.get(twin)
            if suspicion is None:
                suspicion = self._suspicions[twin] = Suspicion(twin.kernel)
            watched = suspicion.of(plan.grid, plan.block, command.parameters, ranges)
            if watched or twin.kernel.shares(plan.block):
                threads = ThreadWatch(command, self._findings, watched)
                self._exchange(command, twin, self._equipped(threads, convergence=convergence))
                return True
            # No thread touches what another may write, except by atomics. Which of these reads
            # unwritten memory first is a question of order.
            is_order_free = suspicion.marks_alike and "init" not in self._kinds
        twin = self._twin(function, windows=windows, convergence=convergence)
        if twin is None:
            return False
        watch = self._equipped(CheckedWatch(), convergence=convergence)
        watch.is_order_free = is_order_free
        self._exchange(command, twin, watch)
        return True

    def _converges(self, function: Function, block: Dim3) -> bool:
        """Whether barriers and meetings must be checked: not if the code shows that all come."""
        if not self._synchronises(function.module):
            return False
        twin = self._twin(function, record=False, convergence=True)
        return twin is not None and twin.kernel.parts_ways(block)

    def _equipped(self, watch: CheckedWatch, *, convergence: bool) -> CheckedWatch:
        watch.convergence = Convergence() if convergence else None
        watch.windows = Windows() if "init" in self._kinds else None
        return watch


def done_by(command: Command) -> Iterator[Done]:
    """The command's accesses, reads first; nothing if unknown."""
    if isinstance(command, KernelLaunch):
        watch = command.expectation
        if isinstance(watch, Watch):
            yield from _recorded(watch)
        return
    touched = command.touched()
    if touched is not None:
        strong = is_strong(command)
        if touched.reads:
            yield Done(ByteRanges.of(touched.reads), is_write=False, is_strong=strong)
        if touched.writes:
            yield Done(ByteRanges.of(touched.writes), is_write=True, is_strong=strong)


def _watch_of(command: KernelLaunch) -> Watch | None:
    return command.expectation if isinstance(command.expectation, Watch) else None


def _meets(instruction: ir.Instruction) -> bool:
    """Whether threads of a block or lanes of a warp wait for each other at this instruction."""
    return instruction.opcode in ("bar", "barrier") or has_members(instruction)


def missed(command: KernelLaunch) -> list[Told]:
    """The threads of a launch that missed each other."""
    watch = command.expectation
    told = watch.convergence if isinstance(watch, CheckedWatch) else None
    return list(told.told()) if told is not None else []


def early_reads(command: KernelLaunch) -> list[EarlyRead]:
    """A kernel's reads of unwritten shared and local memory, one for each line."""
    watch = _watch_of(command)
    windows = watch.windows if watch is not None else None
    if windows is None:
        return []
    # Slots have blocks in ascending order, so that the first of all slots is the launch's first.
    found = sorted(windows.early(), key=lambda each: each.block[::-1], reverse=True)
    return list({each.line: each for each in found}.values())


def strong_reads(command: Command) -> ByteRanges:
    """The words from which a waiting command may have learnt the end of other commands."""
    if not isinstance(command, KernelLaunch):
        touched = command.touched()
        return NOTHING if touched is None else ByteRanges.of(touched.reads)
    return reduce(union, (each.ranges for each in done_by(command) if each.is_strong), NOTHING)


def _recorded(watch: Watch) -> Iterator[Done]:
    record = watch.recording
    for index in range(record.count):
        read, written, early = (record.first(index, kind) for kind in KINDS)
        if read is None and written is None:
            continue
        runs = record.runs(index)
        if read is not None:
            yield from _of_a_kind(runs, Touch.READ, read.line)
        if early is not None:
            first = runs.of_kind(Touch.READ_FIRST)
            yield Done(NOTHING, is_write=False, line=early.line, early=first)
        if written is not None:
            yield from _of_a_kind(runs, Touch.WRITTEN, written.line)


def _of_a_kind(runs: MarkRuns, kind: Touch, line: int) -> Iterator[Done]:
    """The strong accesses of a kind, then the plain accesses."""
    is_write = kind is Touch.WRITTEN
    plain = Touch.PLAIN_WRITE if is_write else Touch.PLAIN_READ
    if ranges := runs.of_kind(kind, plain):
        yield Done(ranges, is_write, is_strong=True, line=line)
    if ranges := runs.of_kind(plain):
        yield Done(ranges, is_write, line=line)
