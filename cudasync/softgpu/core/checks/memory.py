"""Cellar. Compares accesses with earlier ones: finds races, and reads of unwritten memory.

Each allocation has its own history. Memory that modules keep for printf and malloc is not checked.
Pageable memory is not checked either: a source is read at the call, and a target is written before
the call returns.
"""

from __future__ import annotations

import re
from ctypes import string_at
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

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
                self._history(allocation).unwritten.within(start, end)
                for allocation, start, end in self._pieces([each])
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
        moved: list[tuple[int, int]] = []
        for each in done:
            source = ""
            if each.line and isinstance(command, KernelLaunch):
                source = source_of(command.function.module.source, each.line)
            verb = "write" if each.is_write else "read"
            access = Access(name, verb, stamp.site, stream, each.line, source, launch=stamp.launch)
            touch = Touch(stamp, access, each.is_write, each.is_strong)
            self._touch(touch, each.ranges)
            if isinstance(command, Copy) and not each.is_write:
                moved += each.ranges
            elif each.is_write:
                self._written(each.ranges, moved)
            if each.early:
                self._read_early(access, each.early)

    def _border(self, allocation: Allocation, access: Access, stamp: Stamp) -> None:
        """Check an allocation or a free; the memory may no longer be found by its address."""
        history = self._history(allocation)
        whole = (allocation.start, allocation.end)
        if "race" in self._kinds:
            touch = Touch(stamp, access, is_write=True)
            for other, low, high in history.shadow.take(touch, [whole]):
                self._findings.add(_race(other, touch, allocation, low, high))
        if access.verb == "allocation" and allocation.kind in _FRESH:
            # A graph's memory comes back at its address, and is unwritten again.
            history.unwritten.add(*whole)

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
        self._touch(Touch(stamp, access, is_write), [(start, end)])
        if is_write:
            self._written([(start, end)], [])
        else:
            self._read_early(access, [(start, end)])

    def writers(self, ranges: Iterable[tuple[int, int]]) -> Iterator[Stamp]:
        """The known last writers of these bytes."""
        for allocation, start, end in self._pieces(ranges):
            yield from self._history(allocation).shadow.writers([(start, end)])

    # Races

    def _touch(self, touch: Touch, ranges: Iterable[tuple[int, int]]) -> None:
        if "race" not in self._kinds:
            return
        for allocation, pieces in groupby(self._pieces(ranges), lambda piece: piece[0]):
            shadow = self._history(allocation).shadow
            rows = ((start, end) for _, start, end in pieces)
            for other, low, high in shadow.take(touch, rows):
                self._findings.add(_race(other, touch, allocation, low, high))

    # Unwritten bytes

    def _written(self, ranges: list[tuple[int, int]], moved: list[tuple[int, int]]) -> None:
        if "init" not in self._kinds:
            return
        # A copy carries unwritten bytes along, if source and target have the same number of rows.
        pairs = zip(ranges, moved, strict=True) if len(ranges) == len(moved) else ()
        holes = [
            (low - source[0] + target[0], high - source[0] + target[0])
            for target, source in pairs
            for allocation, start, end in self._pieces([source])
            for low, high in self._holes(allocation, start, end)
        ]
        for allocation, start, end in self._pieces(ranges):
            self._history(allocation).unwritten.take_away(start, end)
        for allocation, start, end in self._pieces(holes):
            self._history(allocation).unwritten.add(start, end)

    def _read_early(self, access: Access, ranges: Iterable[tuple[int, int]]) -> None:
        if "init" not in self._kinds:
            return
        for allocation, start, end in self._pieces(ranges):
            for low, high in self._holes(allocation, start, end)[:1]:
                text = f"{access.what} reads memory that was never written"
                missing = (
                    "missing: a memset, a copy or a kernel that writes it, ordered before the read"
                )
                where = _where(allocation, low, high)
                self._findings.add(Finding("init", text, [access], where, missing))

    def _holes(self, allocation: Allocation, start: int, end: int) -> list[tuple[int, int]]:
        """The unwritten bytes of a range.

        Host memory has the unwritten bytes that copies brought. The host may have written them, or
        managed memory, since and unseen, so only bytes that are still poison count.
        """
        unwritten = self._history(allocation).unwritten
        found = unwritten.within(start, end)
        if allocation.kind in _UNSEEN_BY_HOST:
            return found
        runs = ((low, re.finditer(_POISON, string_at(low, high - low))) for low, high in found)
        left = [(low + run.start(), low + run.end()) for low, each in runs for run in each]
        # Bytes that the host has written need no second look, and launches on them no record.
        unwritten.take_away(start, end)
        for low, high in left:
            unwritten.add(low, high)
        return left

    # Histories

    def _pieces(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[Allocation, int, int]]:
        allocation = None
        for start, end in ranges:
            while start < end:
                # Many ranges may follow each other in one allocation.
                if allocation is None or not allocation.start <= start < allocation.end:
                    allocation = self._find(start)
                if allocation is None:
                    break
                if not (allocation.kind is MemoryKind.VARIABLE and " " in allocation.name):
                    yield allocation, start, min(end, allocation.end)
                start = max(allocation.end, start + 1)

    def _history(self, allocation: Allocation) -> _History:
        found = self._histories.get(allocation)
        if found is None:
            if len(self._histories) > _MOST_HISTORIES:
                self._histories = {a: h for a, h in self._histories.items() if not a.freed_at}
            start, end = allocation.start, allocation.end
            is_fresh = allocation.kind in _FRESH and allocation not in self._old
            found = _History(Shadow(start, end), Unwritten([(start, end)] if is_fresh else []))
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
