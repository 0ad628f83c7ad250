"""Cellar, jit. Calls that mark written bytes of shared and local memory, and test reads for them.

Code compiled for recording contains the calls. They do nothing unless the check is on: otherwise
the state of a slot is 0, see `softgpu/interface/initialisation_windows.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.access_recording import Touch
from cudasync.softgpu.interface.initialisation_windows import MOST_ROWS, Row, State
from cudasync.softgpu.jit.addressing.memcheck import lay_out, next_lane
from cudasync.softgpu.jit.kernel_abi.job_record import Field, Where
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_OURS = frozenset({StateSpace.SHARED, StateSpace.LOCAL, StateSpace.PARAM, StateSpace.GENERIC})
_BLOCK = "i32 %ctaid.x, i32 %ctaid.y, i32 %ctaid.z"


def note_window(
    lowering: Lowering, instruction: ir.Instruction, where: Place, size: int, kind: Touch
) -> None:
    """Note that each active lane accesses `size` bytes, which may lie in a window of the block."""
    builder = lowering.builder
    if not lowering.settings.record or where.where is Where.ALLOCATIONS or builder.is_silent:
        return
    if instruction.space not in _OURS:
        return
    if kind is Touch.READ and instruction.space is StateSpace.PARAM:
        return  # An argument is written by construction.
    if kind is Touch.READ and "vprintf" in instruction.text:
        return  # The arguments of a print have padding between them.
    name = f"@cudasync.window.{kind.value}.{size}.v{builder.lanes}"
    builder.functions |= {"@cudasync.window.fresh": _FRESH, "@cudasync.window.tell": _TELL}
    builder.functions[name] = _access(name, size, kind, builder.lanes)
    builder.declarations.add(_MEMSET)
    place, spacing = lay_out(lowering, where.address)
    word = mask_word(builder, lowering.mask)
    builder.emit(
        f"call void {name}(ptr %job, {_BLOCK}, i32 %warp, ptr {place}, i32 {spacing}, i32 {word},"
        f" i64 {instruction.span.line})"
    )


_MEMSET = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"


def _word(name: str, place: int, of: str = "%state") -> str:
    return f"""\
  %{name}.at = getelementptr i64, ptr {of}, i64 {place}
  %{name} = load i64, ptr %{name}.at"""


# Called when a block begins: no byte of its windows is written.
_FRESH = f"""
define void @cudasync.window.fresh(ptr %state, i64 %x, i64 %y, i64 %z) noinline {{
{_word("distance", State.DISTANCE)}
{_word("low", State.LOW)}
{_word("high", State.HIGH)}
{_word("reserved", State.RESERVED)}
{_word("old.x", State.X)}
{_word("old.y", State.Y)}
{_word("old.z", State.Z)}
  store i64 %x, ptr %old.x.at
  store i64 %y, ptr %old.y.at
  store i64 %z, ptr %old.z.at
  %size = sub i64 %high, %low
  %start = add i64 %low, %distance
  %marks = inttoptr i64 %start to ptr
  call void @llvm.memset.p0.i64(ptr %marks, i8 0, i64 %size, i1 false)
  call void @llvm.memset.p0.i64(ptr %marks, i8 1, i64 %reserved, i1 false)
  ret void
}}
"""
# Enters a row for a line that has no row yet.
_TELL = (
    f"""
define void @cudasync.window.tell(ptr %state, i64 %line, i64 %address, i64 %size, i64 %thread)
    noinline {{
entry:
{_word("count", State.COUNT)}
  br label %next
next:
  %place = phi i64 [0, %entry], [%following, %row]
  %words = mul i64 %place, {len(Row)}
  %from = add i64 %words, {State.ROWS.value}
  %row.at = getelementptr i64, ptr %state, i64 %from
  %is.new = icmp uge i64 %place, %count
  br i1 %is.new, label %enter, label %row
row:
  %known = load i64, ptr %row.at
  %is.known = icmp eq i64 %known, %line
  %following = add i64 %place, 1
  br i1 %is.known, label %done, label %next
enter:
  %is.full = icmp uge i64 %count, {MOST_ROWS}
  br i1 %is.full, label %done, label %store
store:
{_word("x", State.X)}
{_word("y", State.Y)}
{_word("z", State.Z)}
  store i64 %line, ptr %row.at
"""
    + "".join(
        f"  %{name}.to = getelementptr i64, ptr %row.at, i64 {place.value}\n"
        f"  store i64 %{name}, ptr %{name}.to\n"
        for name, place in (
            ("address", Row.ADDRESS),
            ("size", Row.SIZE),
            ("thread", Row.THREAD),
            ("x", Row.X),
            ("y", Row.Y),
            ("z", Row.Z),
        )
    )
    + """  %count.new = add i64 %count, 1
  store i64 %count.new, ptr %count.at
  br label %done
done:
  ret void
}
"""
)


# Goes on at `entry`, prepared for the current block, or to `done` if the check is off.
_BEGIN = f"""\
begin:
  %state.at = getelementptr i64, ptr %job, i64 {Field.WINDOWS.value}
  %state.address = load i64, ptr %state.at
  %is.off = icmp eq i64 %state.address, 0
  br i1 %is.off, label %done, label %block
block:
  %state = inttoptr i64 %state.address to ptr
  %x = zext i32 %ctaid.x to i64
  %y = zext i32 %ctaid.y to i64
  %z = zext i32 %ctaid.z to i64
{_word("old.x", State.X)}
{_word("old.y", State.Y)}
{_word("old.z", State.Z)}
  %other.x = xor i64 %x, %old.x
  %other.y = xor i64 %y, %old.y
  %other.z = xor i64 %z, %old.z
  %other.xy = or i64 %other.x, %other.y
  %other = or i64 %other.xy, %other.z
  %is.same = icmp eq i64 %other, 0
  br i1 %is.same, label %ready, label %fresh
fresh:
  call void @cudasync.window.fresh(ptr %state, i64 %x, i64 %y, i64 %z)
  br label %ready
ready:
  %wide.warp = zext i32 %warp to i64
"""
_PARAMETERS = f"ptr %job, {_BLOCK}, i32 %warp, ptr %addresses, i32 %spacing, i32 %given, i64 %line"
_ONES = int.from_bytes(bytes([1] * 8), "little")


def _run(size: int, kind: Touch, lanes: int) -> str:
    """From `ready` to `entry`: handles all lanes at once if they are adjacent and the check allows
    it. Otherwise `%mask` has the lanes to visit; if they share one address, only the first lane."""
    width, steps = size * lanes, ", ".join(f"i64 {size * n}" for n in range(lanes))
    vector = f"<{lanes} x i64>"
    do = """\
  call void @llvm.memset.p0.i64(ptr %run.at, i8 1, i64 %run.size, i1 false)
  br label %done
"""
    if kind & Touch.READ:
        # Each mark is 0 or 1: all marks are 1 if the words together have ones everywhere.
        do = f"""\
  br label %word
word:
  %offset = phi i64 [0, %run], [%offset.next, %word]
  %ones = phi i64 [-1, %run], [%ones.next, %word]
  %word.at = getelementptr i8, ptr %run.at, i64 %offset
  %word.marks = load i64, ptr %word.at, align 1
  %ones.next = and i64 %ones, %word.marks
  %offset.next = add i64 %offset, 8
  %are.more = icmp ult i64 %offset.next, %run.size
  br i1 %are.more, label %word, label %judge
judge:
  %are.written = icmp eq i64 %ones.next, {_ONES}
  br i1 %are.written, label %done, label %entry
"""
    judged = ", [%given, %judge]" if kind & Touch.READ else ""
    return f"""\
{_word("distance", State.DISTANCE)}
{_word("low", State.LOW)}
{_word("high", State.HIGH)}
  %negated = sub i32 0, %given
  %lowest = and i32 %given, %negated
  %is.one = icmp eq i32 %spacing, 0
  br i1 %is.one, label %entry, label %several
several:
  %is.full = icmp eq i32 %given, {(1 << lanes) - 1}
  br i1 %is.full, label %line.up, label %entry
line.up:
  %all = load {vector}, ptr %addresses, align 8
  %start = extractelement {vector} %all, i32 0
  %start.one = insertelement {vector} poison, i64 %start, i32 0
  %starts = shufflevector {vector} %start.one, {vector} poison, <{lanes} x i32> zeroinitializer
  %expected = add {vector} %starts, <{steps}>
  %are.apart = icmp ne {vector} %all, %expected
  %apart = bitcast <{lanes} x i1> %are.apart to i{lanes}
  %is.run = icmp eq i{lanes} %apart, 0
  %behind = add i64 %start, {width}
  %is.above = icmp uge i64 %start, %low
  %is.below = icmp ule i64 %behind, %high
  %is.inside = and i1 %is.above, %is.below
  %is.fast = and i1 %is.run, %is.inside
  br i1 %is.fast, label %run, label %entry
run:
  %run.marked = add i64 %start, %distance
  %run.at = inttoptr i64 %run.marked to ptr
  %run.size = add i64 0, {width}
{do}entry:
  %mask = phi i32 [%lowest, %ready], [%given, %several], [%given, %line.up]{judged}
"""


def _access(name: str, size: int, kind: Touch, lanes: int) -> str:
    """The function for accesses of this kind to `size` bytes."""
    bits = f"i{8 * size}"
    ones = int.from_bytes(bytes([1] * size), "little")
    look = f"""\
  %marks = load {bits}, ptr %marks.at, align 1
  %is.written = icmp eq {bits} %marks, {ones}
  br i1 %is.written, label %go.on, label %early
early:
  %own = zext i32 %index to i64
  %thread = add i64 %first, %own
  call void @cudasync.window.tell(ptr %state, i64 %line, i64 %address, i64 {size}, i64 %thread)
  br label %mark
"""
    return f"""
define void {name}({_PARAMETERS}) {{
{_BEGIN}{_run(size, kind, lanes)}  %end = sub i64 %high, {size}
  %first = mul i64 %wide.warp, {lanes}
{next_lane("go.on")}
  %place = mul i32 %index, %spacing
  %address.at = getelementptr i64, ptr %addresses, i32 %place
  %address = load i64, ptr %address.at
  %is.low = icmp ult i64 %address, %low
  %is.high = icmp ugt i64 %address, %end
  %is.elsewhere = or i1 %is.low, %is.high
  br i1 %is.elsewhere, label %go.on, label %here
here:
  %marked = add i64 %address, %distance
  %marks.at = inttoptr i64 %marked to ptr
{look if kind & Touch.READ else "  br label %mark"}
mark:
  store {bits} {ones}, ptr %marks.at, align 1
  br label %go.on
go.on:
  br label %next
done:
  ret void
}}
"""
