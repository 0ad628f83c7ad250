"""Cellar. Compares accesses with earlier ones: finds races, and reads of unwritten memory.

Each allocation has its own history. Memory that modules keep for printf and malloc is not checked.
Pageable memory is not checked either: a source is read at the call, and a target is written before
the call returns.
"""

from __future__ import annotations

import re
from ctypes import string_at
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudasync.softgpu.core.checks.findings import Access, Finding
from cudasync.softgpu.core.checks.kernel_meetings import at_line, place
from cudasync.softgpu.core.checks.shadow import Shadow, Touch
from cudasync.softgpu.core.checks.unwritten import Unwritten
from cudasync.softgpu.core.graphs.memory_nodes import MemoryAppears, MemoryVanishes
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.memory.copy_commands import Copy
from cudasync.softgpu.core.memory.stream_ordered_allocation import Appear, Vanish
from cudasync.softgpu.core.modules.source_lines import source_of
from cudasync.softgpu.core.streams.memory_operations import WaitValue, WriteValue
from cudasync.softgpu.interface.byte_ranges import NOTHING, ByteRanges
from cudasync.softgpu.interface.poison import PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudasync.softgpu.core.checks.findings import Findings
    from cudasync.softgpu.core.checks.order import Stamp
    from cudasync.softgpu.core.checks.watching import Done
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.interface.initialisation_windows import EarlyRead

# The number of histories above which those of freed allocations are dropped.
_MOST_HISTORIES = 512
# Memory that is unwritten when new, and that the host writes by calls alone.
_UNSEEN_BY_HOST = (MemoryKind.DEVICE, MemoryKind.POOL, MemoryKind.ARRAY)
# The host may write managed memory unseen, so bytes of it count while they are poison.
_FRESH = (*_UNSEEN_BY_HOST, MemoryKind.MANAGED)
_POISON = re.compile(b"[%s]+" % re.escape(PATTERN))


class _History(NamedTuple):
    shadow: Shadow
    unwritten: Unwritten


class CheckedMemory:
    """The memory of a machine while a check is under way."""

    def __init__(self, machine: Machine, findings: Findings, kinds: frozenset[str]) -> None:
        self._find = machine.memory.find
        self._findings = findings
        self._kinds = kinds
        self._histories: dict[Allocation, _History] = {}
        # Existing memory may have been written.
        tables = [*(device.memory for device in machine.devices), machine.host_memory]
        self._old = {each for table in tables for each in table.live()}

    def unwritten(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of the given ranges that may have unwritten bytes."""
        return [
            each
            for each in ranges
            if any(
                self._history(allocation).unwritten.within(piece)
                for allocation, piece in self._pieces(ByteRanges.of([each]))
            )
        ]

    # Accesses

    def command(self, command: Command, stamp: Stamp, done: Iterable[Done]) -> None:
        """Check the accesses of a finished command."""
        name = command.describe()
        stream = command.stream.name
        bordered = _bordered(command)
        if bordered is not None:
            self._border(
                bordered,
                Access(name, _verb(command), stamp.site, stream, launch=stamp.launch),
                stamp,
            )
            return
        if "init" in self._kinds and isinstance(command, Copy):
            self._carry(command)
        for each in done:
            source = ""
            if each.line and isinstance(command, KernelLaunch):
                source = source_of(command.function.module.source, each.line)
            verb = "write" if each.is_write else "read"
            access = Access(name, verb, stamp.site, stream, each.line, source, launch=stamp.launch)
            touch = Touch(stamp, access, each.is_write, each.is_strong)
            self._touch(touch, each.ranges)
            if each.is_write and not isinstance(command, Copy):
                self._written(each.ranges)
            self._read_early(access, each.early)

    def _border(self, allocation: Allocation, access: Access, stamp: Stamp) -> None:
        """Check an allocation or a free; the memory may no longer be found by its address."""
        history = self._history(allocation)
        whole = (allocation.start, allocation.end)
        if "race" in self._kinds:
            touch = Touch(stamp, access, is_write=True)
            for other, low, high in history.shadow.take(touch, ByteRanges.of([whole])):
                self._findings.add(_race(other, touch, allocation, low, high))
        if access.verb == "allocation" and allocation.kind in _FRESH:
            # A graph's memory comes back at its address, and is unwritten again.
            history.unwritten.add(ByteRanges.of([whole]))

    def windows(self, command: KernelLaunch, early: Iterable[EarlyRead]) -> None:
        """Report a kernel's reads of unwritten shared and local memory."""
        if "init" not in self._kinds:
            return
        for each in early:
            access = at_line(command, "read", each.line)
            thread = f"thread {place(each.thread, command.plan.block)} of block {each.block}"
            room = "shared" if each.is_shared else "local"
            end = each.offset + each.size_bytes - 1
            which = f"bytes {each.offset} to {end}" if each.size_bytes > 1 else f"byte {end}"
            of = "the block's shared memory" if each.is_shared else "the thread's local memory"
            text = f"{access.what} reads {room} memory that was never written"
            missing = "missing: a write on every path to the read"
            missing += ", with a barrier after it" if each.is_shared else ""
            where = f"{which} of {of}, {thread}"
            self._findings.add(Finding("init", text, [access], where, missing))

    def host(self, stamp: Stamp, start: int, end: int, *, is_write: bool) -> None:
        """Check an access of the host."""
        access = Access("the host", "write" if is_write else "read", stamp.site)
        ranges = ByteRanges.of([(start, end)])
        self._touch(Touch(stamp, access, is_write), ranges)
        if is_write:
            self._written(ranges)
        else:
            self._read_early(access, ranges)

    def writers(self, ranges: ByteRanges) -> Iterator[Stamp]:
        """The known last writers of these bytes."""
        for allocation, pieces in self._pieces(ranges):
            yield from self._history(allocation).shadow.writers(pieces)

    # Races

    def _touch(self, touch: Touch, ranges: ByteRanges) -> None:
        if "race" not in self._kinds:
            return
        for allocation, pieces in self._pieces(ranges):
            for other, low, high in self._history(allocation).shadow.take(touch, pieces):
                self._findings.add(_race(other, touch, allocation, low, high))

    # Unwritten bytes

    def _written(self, ranges: ByteRanges) -> None:
        if "init" not in self._kinds:
            return
        for allocation, pieces in self._pieces(ranges):
            self._history(allocation).unwritten.take_away(pieces)

    def _carry(self, copy: Copy) -> None:
        """A copy writes its target, and carries unwritten bytes along.

        It does so if source and target have the same number of rows.
        """
        touched = copy.touched()
        sources, targets = touched.reads, touched.writes
        pairs: Iterable[tuple[tuple[int, int], tuple[int, int]]] = ()
        if len(targets) == len(sources) and any(
            self._holes(*each) for each in self._pieces(ByteRanges.of(sources))
        ):
            pairs = zip(targets, sources, strict=True)
        holes = [
            (low - source[0] + target[0], high - source[0] + target[0])
            for target, source in pairs
            for allocation, pieces in self._pieces(ByteRanges.of([source]))
            for low, high in self._holes(allocation, pieces)
        ]
        self._written(ByteRanges.of(targets))
        for allocation, pieces in self._pieces(ByteRanges.of(holes)):
            self._history(allocation).unwritten.add(pieces)

    def _read_early(self, access: Access, ranges: ByteRanges) -> None:
        if "init" not in self._kinds:
            return
        for allocation, pieces in self._pieces(ranges):
            for low, high in islice(self._holes(allocation, pieces), 1):
                text = f"{access.what} reads memory that was never written"
                missing = (
                    "missing: a memset, a copy or a kernel that writes it, ordered before the read"
                )
                where = _where(allocation, low, high)
                self._findings.add(Finding("init", text, [access], where, missing))

    def _holes(self, allocation: Allocation, ranges: ByteRanges) -> ByteRanges:
        """The unwritten bytes among these.

        Host memory has the unwritten bytes that copies brought. The host may have written them, or
        managed memory, since and unseen, so only bytes that are still poison count.
        """
        unwritten = self._history(allocation).unwritten
        found = unwritten.within(ranges)
        if allocation.kind in _UNSEEN_BY_HOST or not found:
            return found
        runs = ((low, re.finditer(_POISON, string_at(low, high - low))) for low, high in found)
        left = ByteRanges.of(
            (low + run.start(), low + run.end()) for low, each in runs for run in each
        )
        # Bytes that the host has written need no second look, and launches on them no record.
        unwritten.take_away(ranges)
        unwritten.add(left)
        return left

    # Histories

    def _pieces(self, ranges: ByteRanges) -> Iterator[tuple[Allocation, ByteRanges]]:
        """The bytes in each allocation."""
        if not ranges:
            return
        start, end = int(ranges.starts[0]), int(ranges.ends[-1])
        while start < end:
            allocation = self._find(start)
            if allocation is None:
                later = int(np.searchsorted(ranges.starts, start, "right"))
                start = int(ranges.starts[later]) if later < len(ranges) else end
                continue
            is_all = end <= allocation.end and start == ranges.starts[0]
            if not (allocation.kind is MemoryKind.VARIABLE and " " in allocation.name):
                yield allocation, ranges if is_all else ranges.within(start, allocation.end)
            if is_all:
                return
            left = ranges.within(max(allocation.end, start + 1), end)
            start = int(left.starts[0]) if left else end

    def _history(self, allocation: Allocation) -> _History:
        found = self._histories.get(allocation)
        if found is None:
            if len(self._histories) > _MOST_HISTORIES:
                self._histories = {a: h for a, h in self._histories.items() if not a.freed_at}
            start, end = allocation.start, allocation.end
            is_fresh = allocation.kind in _FRESH and allocation not in self._old
            fresh = ByteRanges.of([(start, end)]) if is_fresh else NOTHING
            found = _History(Shadow(start, end), Unwritten(fresh))
            self._histories[allocation] = found
        return found


def is_strong(command: Command) -> bool:
    """True for waits for and writes of words, which are made for concurrent access."""
    return isinstance(command, WaitValue | WriteValue)


def _bordered(command: Command) -> Allocation | None:
    """The memory that this command allocates or frees."""
    if isinstance(command, Appear | Vanish):
        return command.allocation
    return command.memory.allocation if isinstance(command, MemoryAppears) else None


def _verb(border: Command) -> str:
    return "free" if isinstance(border, Vanish | MemoryVanishes) else "allocation"


def _race(first: Touch, second: Touch, allocation: Allocation, low: int, high: int) -> Finding:
    one, two = first.access, second.access
    text = f"nothing orders the {one.verb} by {one.what} and the {two.verb} by {two.what}"
    return Finding("race", text, [one, two], _where(allocation, low, high), _missing(one, two))


def _missing(one: Access, two: Access) -> str:
    if two.what == "the host":
        return f"missing: a wait for {one.stream}, or for an event recorded after the {one.verb}"
    if one.what == "the host":
        return f"missing: the end of the host's {one.verb}, before the {two.verb} is enqueued"
    if one.stream == two.stream:
        return (
            f"missing: an edge between the two nodes of {one.stream}, or memory of its own for each"
        )
    return (
        f"missing: an event recorded in {one.stream} after the {one.verb}, and a wait of "
        f"{two.stream} for it before the {two.verb}; or a wait of the host between the two calls"
    )


def _where(allocation: Allocation, low: int, high: int) -> str:
    offset = low - allocation.start
    return f"bytes {offset} to {high - allocation.start - 1} of {allocation.describe()}"
