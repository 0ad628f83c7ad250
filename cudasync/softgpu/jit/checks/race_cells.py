"""Cellar, jit. Compares one access with one cell, and updates the cell."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.race_records import (
    PENDING,
    STRONG,
    THREAD_MASK,
    TIME_SHIFT,
    WARP_BITS,
    WARP_MASK,
    WARP_SHIFT,
    State,
)
from cudasync.softgpu.jit.checks.race_functions import CONFLICT_NAME, read

_WARPS: Final = (1 << WARP_BITS) - 1
# The kind of an access, or of the access before it.
READ, WRITE, ATOMIC = 1, 2, 3


def _unordered(name: str, entry: str) -> str:
    """Whether `entry` is another thread's, not known to be earlier, and one of the two is weak."""
    return f"""
  %{name}.differs = xor i64 {entry}, %me
  %{name}.other.thread = and i64 %{name}.differs, {THREAD_MASK}
  %{name}.is.other = icmp ne i64 %{name}.other.thread, 0
  %{name}.other.warp = and i64 %{name}.differs, {WARP_MASK}
  %{name}.is.near = icmp eq i64 %{name}.other.warp, 0
  %{name}.warp.high = lshr i64 {entry}, {WARP_SHIFT}
  %{name}.warp.part = sub i64 %{name}.warp.high, %first
  %{name}.warp = and i64 %{name}.warp.part, {_WARPS}
  %{name}.is.own = icmp ult i64 %{name}.warp, %warps
  %{name}.in.block = select i1 %{name}.is.own, i64 %floor, i64 %beyond
  %{name}.limit = select i1 %{name}.is.near, i64 %near, i64 %{name}.in.block
  %{name}.time = lshr i64 {entry}, {TIME_SHIFT}
  %{name}.is.after = icmp ugt i64 %{name}.time, %{name}.limit
  %{name}.both = and i64 {entry}, %me
  %{name}.strong.bit = and i64 %{name}.both, {STRONG}
  %{name}.is.weak = icmp eq i64 %{name}.strong.bit, 0
  %{name}.open = and i1 %{name}.is.other, %{name}.is.after
  %{name}.is.race = and i1 %{name}.open, %{name}.is.weak"""


def _entry(n: int) -> str:
    return f"""
  %r{n}.at = getelementptr i64, ptr %cell, i64 {n}
  %r{n} = load i64, ptr %r{n}.at"""


def _conflict(entry: str, old_kind: str) -> str:
    return (
        f"call void {CONFLICT_NAME}(ptr %state, i64 {entry}, i64 {old_kind}, i64 %me, i64 %kind,"
        " i64 %address, i64 %size, i64 %offset, ptr %values, i64 %each, i64 %lanes,"
        " ptr %addresses, i32 %spacing, i32 %mask)"
    )


def _against_reader(n: int, onward: str) -> str:
    """Compare a write with a reader."""
    return f"""against.{n}:{_entry(n)}{_unordered(f"r{n}", f"%r{n}")}
  br i1 %r{n}.is.race, label %against.{n}.told, label %{onward}
against.{n}.told:
  {_conflict(f"%r{n}", str(READ))}
  br label %{onward}"""


def _leave_reader(n: int) -> str:
    """Remove a reader after a write; a strong write keeps its own thread's plain read."""
    name = f"l{n}"
    return f"""  %{name}.strong.bit = and i64 %r{n}, {STRONG}
  %{name}.is.plain = icmp eq i64 %{name}.strong.bit, 0
  %{name}.is.mine = xor i1 %r{n}.is.other, true
  %{name}.is.recent = icmp ugt i64 %r{n}.time, %floor
  %{name}.both = and i1 %{name}.is.plain, %{name}.is.mine
  %{name}.hidden = and i1 %{name}.both, %is.strong
  %{name}.stays = and i1 %{name}.hidden, %{name}.is.recent
  %{name} = select i1 %{name}.stays, i64 %r{n}, i64 0
  store i64 %{name}, ptr %r{n}.at"""


def _take_place(n: int, onward: str) -> str:
    """A reader replaces an earlier reader; a strong reader does not replace a plain one."""
    name = f"p{n}"
    return f"""reads.{n}:
  %{name}.at = getelementptr i64, ptr %cell, i64 {n}
  %{name} = load i64, ptr %{name}.at{_unordered(name, f"%{name}")}
  %{name}.loses = xor i64 %{name}, %me
  %{name}.loses.bit = and i64 %{name}.loses, %me
  %{name}.loses.strong = and i64 %{name}.loses.bit, {STRONG}
  %{name}.keeps = icmp eq i64 %{name}.loses.strong, 0
  %{name}.is.empty = icmp eq i64 %{name}, 0
  %{name}.may = or i1 %{name}.keeps, %{name}.is.empty
  %{name}.is.behind = xor i1 %{name}.open, true
  %{name}.takes = and i1 %{name}.is.behind, %{name}.may
  br i1 %{name}.takes, label %reads.{n}.here, label %{onward}
reads.{n}.here:
  store i64 %me, ptr %{name}.at
  br label %done"""


CELL_NAME: Final = "@cudasync.race.cell"
# Compares one access with one cell. Lanes of its warp are ordered before it up to the time `near`,
# warps of its block up to `floor`, other blocks up to `beyond`: for shared memory these are over.
CELL = f"""
define internal void {CELL_NAME}(ptr %state, ptr %cell, i64 %me, i64 %kind, i64 %first, i64 %warps,
    i64 %floor, i64 %near, i64 %beyond, i64 %address, i64 %size, i64 %offset, ptr %values,
    i64 %each, i64 %lanes, ptr %addresses, i32 %spacing, i32 %mask) alwaysinline nounwind {{
entry:
  %last = load i64, ptr %cell{_unordered("w", "%last")}
  %is.read = icmp eq i64 %kind, {READ}
  %pending.bit = and i64 %last, {PENDING}
  %is.pending = icmp ne i64 %pending.bit, 0
  br i1 %is.pending, label %pending, label %plain
; A copy that goes on behind the instruction: it is over once its warp has waited for it.
pending:
  %w.warp.safe = and i64 %w.warp, 63
{read("%state", "copied", State.COPIED, "%w.warp.safe")}
  %is.not.over = icmp ugt i64 %w.time, %copied
  %is.going.on = and i1 %is.not.over, %w.is.own
  %is.late = or i1 %is.going.on, %w.is.race
  br i1 %is.late, label %told, label %held
plain:
  br i1 %w.is.race, label %told, label %held
told:
  {_conflict("%last", str(WRITE))}
  br label %held
held:
  br i1 %is.read, label %reads.1, label %against.1
{_against_reader(1, "against.2")}
{_against_reader(2, "against.3")}
{_against_reader(3, "writes")}
writes:
  %was.plain = and i64 %last, {STRONG}
  %is.was.plain = icmp eq i64 %was.plain, 0
  %am.strong = and i64 %me, {STRONG}
  %is.strong = icmp ne i64 %am.strong, 0
  %is.mine = xor i1 %w.is.other, true
  %hides = and i1 %is.was.plain, %is.strong
  %hides.mine = and i1 %hides, %is.mine
  ; What others have to be behind is the plain write, until a barrier of all.
  %is.recent = icmp ugt i64 %w.time, %floor
  %stays = and i1 %hides.mine, %is.recent
  br i1 %stays, label %done, label %writes.here
writes.here:
  store i64 %me, ptr %cell
{_leave_reader(1)}
{_leave_reader(2)}
{_leave_reader(3)}
  br label %done
{_take_place(1, "reads.2")}
{_take_place(2, "reads.3")}
{_take_place(3, "reads.far")}
; All have their place: of two from one warp one gives way to a reader of another.
reads.far:
  %d12 = xor i64 %p1, %p2
  %d12.warp = and i64 %d12, {WARP_MASK}
  %is.d12 = icmp eq i64 %d12.warp, 0
  %d13 = xor i64 %p1, %p3
  %d13.warp = and i64 %d13, {WARP_MASK}
  %is.d13 = icmp eq i64 %d13.warp, 0
  %is.twin = or i1 %is.d12, %is.d13
  %far.1 = xor i1 %p1.is.near, true
  %far.2 = xor i1 %p2.is.near, true
  %far.3 = xor i1 %p3.is.near, true
  %far.12 = and i1 %far.1, %far.2
  %is.far = and i1 %far.12, %far.3
  %gives = and i1 %is.twin, %is.far
  %p.at = select i1 %is.d12, ptr %p2.at, ptr %p3.at
  br i1 %gives, label %reads.far.here, label %done
reads.far.here:
  store i64 %me, ptr %p.at
  br label %done
done:
  ret void
}}
"""
