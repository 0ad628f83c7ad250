"""Cellar, jit. Calls that mark written bytes of shared and local memory, and test reads for them.

Code compiled with `windows` contains the calls. They do nothing unless the check is on: otherwise
the state of a slot is 0, see `softgpu/interface/initialisation_windows.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.access_recording import Touch
from cudasync.softgpu.interface.initialisation_windows import (
    MOST_ROWS,
    Y_BIT,
    Z_BIT,
    Row,
    State,
)
from cudasync.softgpu.jit.checks.lane_calls import mark_lanes
from cudasync.softgpu.jit.checks.mark_functions import Marking, is_any, repeated, splat
from cudasync.softgpu.jit.kernel_abi.job_record import Field, Where

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_OURS = frozenset({StateSpace.SHARED, StateSpace.LOCAL, StateSpace.PARAM, StateSpace.GENERIC})
# Stands in the text of a kernel that uses the block's own memory.
WINDOW_CALL: Final = "call void @cudasync.window."
_PARAMETERS: Final = "ptr %job, i64 %block, i32 %warp"


def note_window(
    lowering: Lowering, instruction: ir.Instruction, where: Place, size: int, kind: Touch
) -> None:
    """Note that each active lane accesses `size` bytes, which may lie in a window of the block."""
    builder = lowering.builder
    if not lowering.settings.windows or where.where is Where.ALLOCATIONS or builder.is_silent:
        return
    if instruction.space not in _OURS:
        return
    if kind is Touch.READ and instruction.space is StateSpace.PARAM:
        return  # An argument is written by construction.
    if kind is Touch.READ and "vprintf" in instruction.text:
        return  # The arguments of a print have padding between them.
    is_shared = instruction.space is StateSpace.SHARED
    marking = _marking(size, kind, builder.lanes, is_shared=is_shared)
    builder.functions |= {"@cudasync.window.fresh": _FRESH, "@cudasync.window.tell": _TELL}
    builder.declarations.add(_MEMSET)
    block = _block(builder)
    arguments = f"ptr %job, i64 {block}, i32 %warp"
    behind = _unless_written(builder, block) if is_shared else ""
    mark_lanes(lowering, marking, arguments, where.address, instruction.span.line)
    if behind:
        builder.go(behind)
        builder.label(behind)


def _block(builder: Builder) -> str:
    """The current block as one word, see `initialisation_windows`."""
    word = ""
    for axis, bit in (("x", 0), ("y", Y_BIT), ("z", Z_BIT)):
        wide = builder.name(f"zext i32 %ctaid.{axis} to i64")
        high = builder.name(f"shl i64 {wide}, {bit}") if bit else wide
        word = builder.name(f"or i64 {word}, {high}") if word else high
    return word


def _unless_written(builder: Builder, block: str) -> str:
    """Go on only if the block's shared memory is not all written, else to the returned label."""
    place = builder.name(f"getelementptr i64, ptr %job, i64 {Field.WRITTEN_BLOCK.value}")
    written = builder.name(f"load i64, ptr {place}")
    is_written = builder.name(f"icmp eq i64 {written}, {block}")
    behind, look = builder.fresh("window.behind"), builder.fresh("window.look")
    builder.emit(f"br i1 {is_written}, label %{behind}, label %{look}")
    builder.label(look)
    return behind


_MEMSET = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"


def _word(name: str, place: int, of: str = "%state") -> str:
    return f"""\
  %{name}.at = getelementptr i64, ptr {of}, i64 {place}
  %{name} = load i64, ptr %{name}.at"""


# Called when a block begins: no byte of its windows is written.
_FRESH = f"""
define void @cudasync.window.fresh(ptr %state, i64 %block) noinline {{
{_word("distance", State.DISTANCE)}
{_word("low", State.LOW)}
{_word("high", State.HIGH)}
{_word("reserved", State.RESERVED)}
{_word("shared", State.SHARED)}
  %unwritten.at = getelementptr i64, ptr %state, i64 {State.UNWRITTEN}
  %unwritten = sub i64 %shared, %reserved
  store i64 %unwritten, ptr %unwritten.at
  %block.at = getelementptr i64, ptr %state, i64 {State.BLOCK.value}
  store i64 %block, ptr %block.at
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
{_word("block", State.BLOCK)}
  store i64 %line, ptr %row.at
"""
    + "".join(
        f"  %{name}.to = getelementptr i64, ptr %row.at, i64 {place.value}\n"
        f"  store i64 %{name}, ptr %{name}.to\n"
        for name, place in (
            ("address", Row.ADDRESS),
            ("size", Row.SIZE),
            ("thread", Row.THREAD),
            ("block", Row.BLOCK),
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


# Finds the marks of the current block's windows; goes to `done` if the check is off.
_FIND = f"""\
find:
  %state.at = getelementptr i64, ptr %job, i64 {Field.WINDOWS.value}
  %state.address = load i64, ptr %state.at
  %is.off = icmp eq i64 %state.address, 0
  br i1 %is.off, label %done, label %compare
compare:
  %state = inttoptr i64 %state.address to ptr
{_word("marked.block", State.BLOCK)}
  %is.same = icmp eq i64 %block, %marked.block
  br i1 %is.same, label %prepared, label %fresh
fresh:
  call void @cudasync.window.fresh(ptr %state, i64 %block)
  br label %prepared
prepared:
{_word("distance", State.DISTANCE)}
{_word("low", State.LOW)}
{_word("high", State.HIGH)}
  %low.marked = add i64 %low, %distance
  %marks = inttoptr i64 %low.marked to ptr
  %room = sub i64 %high, %low
"""
# Accesses to shared memory count its unwritten bytes.
_COUNTED = f"""\
{_word("unwritten", State.UNWRITTEN)}
  %written.block.at = getelementptr i64, ptr %job, i64 {Field.WRITTEN_BLOCK.value}
  br label %ready"""


def _marking(size: int, kind: Touch, lanes: int, *, is_shared: bool) -> Marking:
    """What accesses of this kind do to the marks, which are 1 for written bytes and else 0."""
    of = ".shared" if is_shared else ""
    bits, ones = 8 * size, repeated(1, 8 * size)
    reads = bool(kind & Touch.READ)
    look = f"""\
  %lane.marks = load i{bits}, ptr %lane.marks.at, align 1
  %is.lane.written = icmp eq i{bits} %lane.marks, {ones}
  br i1 %is.lane.written, label %go.on, label %early
early:
  %wide.warp = zext i32 %warp to i64
  %first = mul i64 %wide.warp, {lanes}
  %own = zext i32 %index to i64
  %thread = add i64 %first, %own
  call void @cudasync.window.tell(ptr %state, i64 %line, i64 %address, i64 {size}, i64 %thread)
  br label %mark
"""
    lane = f"""\
  %lane.offset = sub i64 %address, %low
  %lane.last = call i64 @llvm.usub.sat.i64(i64 %room, i64 {size - 1})
  %is.here = icmp ult i64 %lane.offset, %lane.last
  br i1 %is.here, label %lane.here, label %go.on
lane.here:
  %lane.marks.at = getelementptr i8, ptr %marks, i64 %lane.offset
{look if reads else "  br label %mark"}
mark:
  store i{bits} {ones}, ptr %lane.marks.at, align 1
  br label %go.on"""

    def update(prefix: str, type_: str, width: int) -> str:
        written = splat(1, type_, width)
        is_open = is_any(prefix, "is.open", f"%{prefix}m", written, type_)
        # A read of unwritten bytes is told lane by lane; a write only stores.
        slow = f"%{prefix}is.open, true" if reads else "false, true"
        changed = f"%{prefix}is.open, false" if reads else f"%{prefix}is.open, true"
        return f"""\
{is_open}
  %{prefix}is.slow = and i1 {slow}
  %{prefix}is.changed = and i1 {changed}
  %{prefix}new = or {type_} {written}, {written}"""

    def count(prefix: str, type_: str, width: int) -> str:
        if not is_shared or reads:
            return ""
        return f"""\
{_ones(prefix, type_, width)}
  %{prefix}unwritten.now = sub i64 %unwritten, %{prefix}newly
  store i64 %{prefix}unwritten.now, ptr %unwritten.at
  %{prefix}is.all = icmp eq i64 %{prefix}unwritten.now, 0
  %{prefix}all.of = select i1 %{prefix}is.all, i64 %block, i64 -1
  store i64 %{prefix}all.of, ptr %written.block.at"""

    return Marking(
        name=f"@cudasync.window{of}.{kind.value}.{size}.v{lanes}",
        size=size,
        lanes=lanes,
        parameters=_PARAMETERS,
        find=_FIND + (_COUNTED if is_shared else "  br label %ready"),
        update=update,
        count=count,
        lane=lane,
        neutral=1,
        known="true",
        is_alone=True,
    )


def _ones(prefix: str, type_: str, width: int) -> str:
    """Text that defines the i64 `newly`: the number of marks that become 1."""
    written = splat(1, type_, width)
    text = f"  %{prefix}turned = xor {type_} %{prefix}m, {written}\n"
    counted = f"%{prefix}turned.bits"
    if not type_.startswith("<"):
        text += f"  {counted} = call {type_} @llvm.ctpop.{type_}({type_} %{prefix}turned)\n"
        return text + _resized(f"%{prefix}newly", counted, width)
    lanes = type_[1:].split()[0]
    of = f"v{lanes}i{width}"
    text += f"  {counted} = call {type_} @llvm.ctpop.{of}({type_} %{prefix}turned)\n"
    if width < 64:
        wide = f"<{lanes} x i64>"
        text += f"  {counted}.wide = zext {type_} {counted} to {wide}\n"
        type_, of, counted = wide, f"v{lanes}i64", f"{counted}.wide"
    text += f"  %{prefix}newly = call i64 @llvm.vector.reduce.add.{of}({type_} {counted})"
    return text


def _resized(name: str, value: str, width: int) -> str:
    if width == 64:
        return f"  {name} = add i64 {value}, 0"
    return f"  {name} = {'zext' if width < 64 else 'trunc'} i{width} {value} to i64"
