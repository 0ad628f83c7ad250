"""Cellar. Access recording: the reads and writes of a launch, recorded while it runs.

A recording watches disjoint ranges of memory. In code compiled to record, both lowerings call one
function after each access to global memory. The function finds the ranges of the access and keeps

- for each range, the PTX line and address of the first read, the first write, and the first read
  before a write of this launch;
- on request, a mark for each byte: which of the three happened to it, and whether by a plain
  access, which is no atomic, not volatile and not ordered by a scope. Where all accesses of a
  kernel are to whole units of 2, 4, 8 or 16 bytes, a mark for each unit says the same.

An atomic reads, then writes. A launch with watched ranges runs on one thread, so that "before" has
a meaning and is the same in every run. If `is_order_free`, it may run on several. Then each has a
table of its own, in which the first accesses are those of its earliest blocks. All share the marks,
without atomic operations: see `is_order_free`. Code compiled without recording pays nothing.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntFlag
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from cudasync.softgpu.interface.access_marks import Marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.softgpu.interface.initialisation_windows import Windows
    from cudasync.softgpu.interface.mark_runs import MarkRuns


class Touch(IntFlag):
    """What happened to a byte."""

    READ = 1
    WRITTEN = 2
    READ_FIRST = 4
    PLAIN_READ = 8
    PLAIN_WRITE = 16


KINDS = (Touch.READ, Touch.WRITTEN, Touch.READ_FIRST)
# Modifiers of strong accesses: two concurrent strong accesses are no race.
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})


def noted(kind: Touch, opcode: str, modifiers: Iterable[str]) -> int:
    """The mark bits for an access of this kind by an instruction with these modifiers."""
    if opcode in ("atom", "red") or not _STRONG.isdisjoint(modifiers):
        return kind.value
    plain = Touch.PLAIN_READ if kind & Touch.READ else Touch(0)
    if kind & Touch.WRITTEN:
        plain |= Touch.PLAIN_WRITE
    return (kind | plain).value


# Words of a row: start, end, address of its marks; then, for each kind, line and address of the
# first access, and the first of the blocks that a thread had taken when it made this access.
_START, _END, _KEPT, _FIRSTS = range(4)
_FIRST_WORDS = 3
_ROW_WORDS = _FIRSTS + _FIRST_WORDS * len(KINDS)
# Words before the table, in which compiled code keeps the indices of rows that it met. The word
# before these has the first of the blocks that the thread runs at present.
HINTS = 64


class Row:
    """The layout of a row, for code that reads it."""

    END, KEPT, WORDS = _END, _KEPT, _ROW_WORDS

    @staticmethod
    def first(kind: Touch) -> int:
        """The word with the line of the first access of a kind."""
        return _FIRSTS + _FIRST_WORDS * KINDS.index(kind)


class Table:
    """Rows of watched memory, with the first accesses of one thread. It lies at `address`."""

    __slots__ = ("_words", "address")

    def __init__(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Take the start, end and address of marks of each row."""
        padding = (0,) * (_ROW_WORDS - _FIRSTS)
        words = [word for row in rows for word in (*row, *padding)]
        before = HINTS + 1
        # One word more, so that the table is memory even without rows.
        self._words = (ctypes.c_uint64 * (before + len(words) + 1))(*(0,) * before, *words)
        self.address = ctypes.addressof(self._words) + 8 * before

    def begin(self, block: int) -> None:
        """Note that the thread goes on with this block and those behind it."""
        self._words[0] = block

    def first(self, index: int, kind: Touch) -> tuple[int, int, int]:
        """The first access of a kind to the range at `index`: block, line (0 if none), address."""
        place = HINTS + 1 + _ROW_WORDS * index + Row.first(kind)
        line, address, block = self._words[place : place + _FIRST_WORDS]
        return block, line, address


@dataclass(frozen=True, slots=True)
class First:
    """The first access of a kind to a range."""

    line: int
    address: int


class Races(Protocol):
    """Finds races between the threads of a launch."""

    def state_of(self, slot: object, shared: int, shared_bytes: int, warps: int) -> int:
        """The address of a fresh state for a slot of the launch; see `race_records.State`."""


class Convergence(Protocol):
    """Learns which threads come to barriers."""

    def state_of(self, slot: object, threads: int) -> int:
        """The address of a fresh state for a slot; see `convergence_records.State`."""


class Recording:
    """The record of one launch over the watched ranges.

    The table lies at `address` as `count` rows, as long as the recording lives.
    """

    __slots__ = (
        "_kept",
        "_tables",
        "address",
        "convergence",
        "count",
        "is_order_free",
        "races",
        "ranges",
        "windows",
    )

    def __init__(
        self,
        ranges: Iterable[tuple[int, int]],
        unmarked: Iterable[tuple[int, int]] = (),
        unit: int = 1,
    ) -> None:
        """Watch (start, end) pairs, in any order; ValueError if two overlap.

        The `unmarked` ranges have no marks: each read counts as a read before any write. `unit` is
        the kernel's `CompiledKernel.unit`; no accessed unit may lie across an end of a range.
        """
        bare = {each for each in unmarked if each[0] < each[1]}
        marked = {each for each in ranges if each[0] < each[1]}
        self.ranges: Sequence[tuple[int, int]] = sorted([*marked, *bare])
        for (_, end), (start, _) in pairwise(self.ranges):
            if start < end:
                raise ValueError(f"watched ranges overlap at {start:#x}")
        self.count = len(self.ranges)
        # Finds races between the threads of the launch, if requested.
        self.races: Races | None = None
        # Tracks written bytes of shared and local memory, if requested.
        self.windows: Windows | None = None
        # Learns which threads come to barriers, if requested.
        self.convergence: Convergence | None = None
        # Whether any order of the blocks leaves the same marks, even if blocks run at once. That is
        # so if different blocks touch one unit only by accesses that set the same bits of its mark:
        # an update of a mark is a load and a store of its byte. The first read before any write
        # depends on the order even so.
        self.is_order_free = False
        # Untouched pages cost nothing.
        self._kept = [
            None if (start, end) in bare else Marks(start, end, unit) for start, end in self.ranges
        ]
        self._tables: list[Table] = []
        self.address = self.table().address

    def table(self) -> Table:
        """A table for a thread of the launch; the first one is at `address`."""
        kept = (0 if each is None else each.address for each in self._kept)
        made = Table(
            (start, end, marks) for (start, end), marks in zip(self.ranges, kept, strict=True)
        )
        self._tables.append(made)
        return made

    @property
    def keeps_order(self) -> bool:
        """Whether the launch must run on one thread; each slot has windows of its own."""
        is_ordered = bool(self.count) and not self.is_order_free
        return is_ordered or self.races is not None or self.convergence is not None

    def first(self, index: int, kind: Touch) -> First | None:
        """The first access of a kind to the range at `index`; None if there was none.

        It is the first in the order of blocks, on whichever threads these ran.
        """
        found = [first for each in self._tables if (first := each.first(index, kind))[1]]
        if not found:
            return None
        _, line, address = min(found)
        return First(line, address)

    def has_marks(self, index: int) -> bool:
        """Whether the range at `index` has a mark for each byte."""
        return self._kept[index] is not None

    def take_as_written(self, start: int, end: int) -> None:
        """Mark bytes as written before the launch: a read of them is then not a first read."""
        for (low, high), kept in zip(self.ranges, self._kept, strict=True):
            first, last = max(low, start), min(high, end)
            if kept is not None and first < last:
                kept.fill(first, last, Touch.WRITTEN)

    def runs(self, index: int) -> MarkRuns:
        """The range at `index`, as runs of bytes with one mark.

        Bytes that were not touched, with a mark of 0, are left out.
        """
        kept = self._kept[index]
        assert kept is not None, f"the range at {self.ranges[index][0]:#x} has no marks"
        return kept.runs()

    def touched(self, index: int, kind: Touch) -> list[tuple[int, int]]:
        """The bytes of the range at `index` with a mark of `kind`, as (start, end) addresses."""
        return list(self.runs(index).of_kind(kind))


def _first(name: str, kind: Touch) -> str:
    """LLVM IR that keeps line, address and block, if this is the first access of the kind."""
    place = Row.first(kind)
    return f"""  %{name}.line.at = getelementptr i64, ptr %row.at, i64 {place}
  %{name}.address.at = getelementptr i64, ptr %row.at, i64 {place + 1}
  %{name}.line = load i64, ptr %{name}.line.at
  %{name}.block.at = getelementptr i64, ptr %row.at, i64 {place + 2}
  %{name}.address = load i64, ptr %{name}.address.at
  %{name}.block = load i64, ptr %{name}.block.at
  %{name}.bit = and i8 %seen, {kind.value}
  %{name}.is = icmp ne i8 %{name}.bit, 0
  %{name}.is.first = icmp eq i64 %{name}.line, 0
  %{name}.keep = and i1 %{name}.is, %{name}.is.first
  %{name}.line.new = select i1 %{name}.keep, i64 %line, i64 %{name}.line
  %{name}.address.new = select i1 %{name}.keep, i64 %address, i64 %{name}.address
  store i64 %{name}.line.new, ptr %{name}.line.at
  %{name}.block.new = select i1 %{name}.keep, i64 %block, i64 %{name}.block
  store i64 %{name}.address.new, ptr %{name}.address.at
  store i64 %{name}.block.new, ptr %{name}.block.at"""


def first_row(before: str, table: str, words: int, end: int, behind: str) -> str:
    """LLVM IR that finds the first of `%count` rows that ends behind `%address`, as `%below`.

    Rows are disjoint and sorted. Each has `words` words; word `end` is the row's end address. The
    code comes from block `before`, and goes to `behind` from its own block `halve`.
    """
    return f"""\
; The first row that ends behind the address: rows are disjoint, and sorted.
halve:
  %below = phi i64 [0, %{before}], [%below.next, %half]
  %above = phi i64 [%count, %{before}], [%above.next, %half]
  %is.left = icmp ult i64 %below, %above
  br i1 %is.left, label %half, label %{behind}
half:
  %both = add i64 %below, %above
  %middle = lshr i64 %both, 1
  %middle.words = mul i64 %middle, {words}
  %middle.at = getelementptr i64, ptr {table}, i64 %middle.words
  %middle.end.at = getelementptr i64, ptr %middle.at, i64 {end}
  %middle.end = load i64, ptr %middle.end.at
  %is.before = icmp ule i64 %middle.end, %address
  %after.middle = add i64 %middle, 1
  %below.next = select i1 %is.before, i64 %after.middle, i64 %below
  %above.next = select i1 %is.before, i64 %above, i64 %middle
  br label %halve"""


NOTE_NAME = "cudasync.note"
# LLVM IR of the function that both lowerings call: `kind` is READ, WRITTEN or both, and a mark is
# for 1 << `shift` bytes.
NOTE = f"""
define void @{NOTE_NAME}(ptr %table, i64 %count, i64 %address, i64 %size, i8 %kind, i64 %line,
    i64 %shift) {{
entry:
  %block.at = getelementptr i64, ptr %table, i64 {-1 - HINTS}
  %behind = add i64 %address, %size
  %reading = and i8 %kind, {Touch.READ.value}
  %as.first = shl i8 %reading, 2
  br label %halve
{first_row("entry", "%table", _ROW_WORDS, _END, "next")}
next:
  %index = phi i64 [%below, %halve], [%following, %advance]
  %is.over = icmp uge i64 %index, %count
  br i1 %is.over, label %done, label %row
row:
  %words = mul i64 %index, {_ROW_WORDS}
  %row.at = getelementptr i64, ptr %table, i64 %words
  %start.at = getelementptr i64, ptr %row.at, i64 {_START}
  %end.at = getelementptr i64, ptr %row.at, i64 {_END}
  %kept.at = getelementptr i64, ptr %row.at, i64 {_KEPT}
  %start = load i64, ptr %start.at
  %end = load i64, ptr %end.at
  %kept.address = load i64, ptr %kept.at
  %kept = inttoptr i64 %kept.address to ptr
  %is.low = icmp ult i64 %address, %start
  %low = select i1 %is.low, i64 %start, i64 %address
  %is.high = icmp ugt i64 %behind, %end
  %high = select i1 %is.high, i64 %end, i64 %behind
  %is.met = icmp ult i64 %low, %high
  br i1 %is.met, label %met, label %done
met:
  %has.marks = icmp ne i64 %kept.address, 0
  br i1 %has.marks, label %unit, label %bare
bare:
  %all = or i8 %kind, %as.first
  br label %firsts
unit:
  %low.offset = sub i64 %low, %start
  %low.unit = lshr i64 %low.offset, %shift
  ; The range may begin within a unit.
  %length = sub i64 %high, %low
  %further = sub i64 %length, 1
  %further.units = lshr i64 %further, %shift
  %last.unit = add i64 %low.unit, %further.units
  br label %byte
byte:
  %at = phi i64 [%low.unit, %unit], [%at.next, %byte]
  %seen.before = phi i8 [0, %unit], [%seen.here, %byte]
  %mark.at = getelementptr i8, ptr %kept, i64 %at
  %mark = load i8, ptr %mark.at
  %written = and i8 %mark, {Touch.WRITTEN.value}
  %is.old = icmp eq i8 %written, 0
  %early = select i1 %is.old, i8 %as.first, i8 0
  %now = or i8 %kind, %early
  %mark.new = or i8 %mark, %now
  store i8 %mark.new, ptr %mark.at
  %seen.here = or i8 %seen.before, %now
  %at.next = add i64 %at, 1
  %is.more = icmp ule i64 %at.next, %last.unit
  br i1 %is.more, label %byte, label %firsts
firsts:
  %seen = phi i8 [%seen.here, %byte], [%all, %bare]
  %block = load i64, ptr %block.at
{_first("read", Touch.READ)}
{_first("write", Touch.WRITTEN)}
{_first("early", Touch.READ_FIRST)}
  br label %advance
advance:
  %following = add i64 %index, 1
  br label %next
done:
  ret void
}}
"""
assert Touch.READ << 2 == Touch.READ_FIRST
