"""Cellar, jit. Functions that update the marks of all lanes of an access at once.

A mark is a byte beside each byte of memory, or beside each unit of `unit` bytes. Three functions
are made for each kind of access: for one address, for a line of adjacent lanes, and for each lane
its own address. Each loads the marks as one vector, and computes new ones. It stores them only if a
mark changes. Whatever the vector cannot decide goes to a loop over the lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.jit.addressing.memcheck import next_lane
from cudasync.softgpu.jit.vector_ir.mask_vectors import flags_call

if TYPE_CHECKING:
    from collections.abc import Callable

# Sizes in bytes that a vector with inactive lanes handles, and that a gather handles.
_MASKED: Final = (1, 2, 4, 8)
_GATHERED: Final = (4, 8)
DECLARATIONS: Final = (
    "declare i32 @llvm.ctlz.i32(i32, i1)",
    "declare i64 @llvm.usub.sat.i64(i64, i64)",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
)


@dataclass(frozen=True, slots=True)
class Marking:
    """What one kind of access does to marks, as text.

    `find` goes from its own label `find` to `ready` or `done`, or to `beyond` if no memory from
    `%probe` on has marks, which is the lowest active lane's address. It defines `%marks`, the mark
    of the address `%low`, and `%room`, the number of bytes from there on that have marks. The i1
    `known` says whether vectors may be used there.

    `update` is given a prefix, a vector type and its elements' width. It computes `new`,
    `is.changed` and `is.slow` with that prefix from the marks `m`. `count` follows the store of new
    marks of a line. `lane` handles `%address` of the lane `%index`, and goes to `%go.on`. Lanes
    without an access have marks of `neutral`. `is_alone`: memory outside of this room has no marks.
    `unit`: the bytes of memory with one mark. All accesses are to whole units.
    """

    name: str
    size: int
    lanes: int
    parameters: str
    find: str
    update: Callable[[str, str, int], str]
    count: Callable[[str, str, int], str]
    lane: str
    neutral: int
    known: str
    is_alone: bool
    unit: int = 1

    @property
    def width(self) -> int:
        """The marks of one access."""
        return self.size // self.unit

    def place(self, name: str, offset: str) -> str:
        """Text that defines `name`: the place of the mark of an offset, which is an i64."""
        if self.unit == 1:
            return f"  {name} = add i64 {offset}, 0"
        return f"  {name} = ashr i64 {offset}, {_shift(self.unit)}"

    def functions(self) -> dict[str, str]:
        """The three functions by name."""
        return {
            f"{self.name}.one": _one(self),
            f"{self.name}.line": _line(self),
            f"{self.name}.each": _each(self),
        }


def _shift(unit: int) -> int:
    return unit.bit_length() - 1


def repeated(mark: int, bits: int) -> int:
    """A mark in each byte of an integer."""
    return int.from_bytes(bytes([mark]) * (bits // 8), "little")


def splat(mark: int, type_: str, bits: int) -> str:
    """A mark in each byte of a vector or an integer."""
    number = repeated(mark, bits)
    return f"splat (i{bits} {number})" if type_.startswith("<") else str(number)


def is_any(prefix: str, name: str, value: str, other: str, type_: str) -> str:
    """Text that defines the i1 `name`: a part of one vector differs from the other's."""
    if not type_.startswith("<"):
        return f"  %{prefix}{name} = icmp ne {type_} {value}, {other}"
    count = type_[1:].split()[0]
    return f"""\
  %{prefix}{name}.each = icmp ne {type_} {value}, {other}
  %{prefix}{name}.bits = bitcast <{count} x i1> %{prefix}{name}.each to i{count}
  %{prefix}{name} = icmp ne i{count} %{prefix}{name}.bits, 0"""


def _head(marking: Marking, suffix: str, address: str) -> str:
    return f"""
define void {marking.name}.{suffix}({marking.parameters}, {address}, i32 %given, i64 %line)
    nounwind {{
begin:
  %is.nobody = icmp eq i32 %given, 0
  br i1 %is.nobody, label %done, label %some
some:
  %lowest = call i32 @llvm.cttz.i32(i32 %given, i1 true)
  %wide.lowest = zext i32 %lowest to i64
"""


def _extent(size: int) -> str:
    """From the lowest lane to the highest, in lines of adjacent lanes."""
    return f"""\
  %leading = call i32 @llvm.ctlz.i32(i32 %given, i1 true)
  %skipped = mul i64 %wide.lowest, {size}
  %highest = sub i32 32, %leading
  %count.lanes = sub i32 %highest, %lowest
  %wide.count = zext i32 %count.lanes to i64
  %span = mul i64 %wide.count, {size}
"""


_INSIDE: Final = """beyond:
  br label %done
ready:
  %offset = sub i64 %probe, %low
  %is.begun = icmp ult i64 %offset, %room
  %end.offset = add i64 %offset, %span
  %is.ended = icmp ule i64 %end.offset, %room
  %is.inside = and i1 %is.begun, %is.ended
  br i1 %is.inside, label %inside, label %outside
outside:
  %is.behind = xor i1 %is.begun, true
  %distance.to.low = sub i64 0, %offset
  %is.before = icmp uge i64 %distance.to.low, %span
  %is.apart = and i1 %is.behind, %is.before
  br i1 %is.apart, label %done, label %slow
inside:
"""


def _change(marking: Marking, prefix: str, type_: str, bits: int, store: str, *, at: str) -> str:
    """From the label `at`, where `%{prefix}m` is known, to `done` or `slow`."""
    return f"""\
{marking.update(prefix, type_, bits)}
  br i1 %{prefix}is.slow, label %slow, label %{at}.quick
{at}.quick:
  br i1 %{prefix}is.changed, label %{at}.store, label %done
{at}.store:
  {store}
"""


def _tail(marking: Marking, mask: str, address: str) -> str:
    """The loop over lanes."""
    loop = next_lane("go.on").replace("%entry", "%slow").replace("%mask", mask)
    return f"""\
slow:
{loop}
{address}
{marking.lane}
go.on:
  br label %next
done:
  ret void
}}
"""


def _one(marking: Marking) -> str:
    """All active lanes have one address."""
    type_, bits = f"i{8 * marking.width}", 8 * marking.width
    return f"""{_head(marking, "one", "i64 %own.address")}\
  %negated = sub i32 0, %given
  %first.lane = and i32 %given, %negated
  %probe = add i64 %own.address, 0
  %span = add i64 0, {marking.size}
  br label %find
{marking.find}
{_INSIDE}  br i1 {marking.known}, label %known, label %slow
known:
{marking.place("%place", "%offset")}
  %marks.at = getelementptr i8, ptr %marks, i64 %place
  %m = load {type_}, ptr %marks.at, align 1
{_change(marking, "", type_, bits, f"store {type_} %new, ptr %marks.at, align 1", at="inside")}\
{marking.count("", type_, bits)}
  br label %done
{_tail(marking, "%first.lane", "  %address = add i64 %own.address, 0")}"""


def _line(marking: Marking) -> str:
    """Adjacent lanes have adjacent elements."""
    size, width, lanes = marking.size, marking.width, marking.lanes
    words = f"<{width * lanes // 8} x i64>"
    each, bits = f"<{lanes} x i{8 * width}>", 8 * width
    partial = "partial:\n  br label %slow\n"
    if width in _MASKED:
        short = "%given" if lanes == 32 else "%short.given"
        trunc = "" if lanes == 32 else f"  {short} = trunc i32 %given to i{lanes}\n"
        flags = f"<{lanes} x i1> %p.on"
        idle = splat(marking.neutral, each, bits)
        kept = f"call {each} @llvm.masked.load.v{lanes}i{bits}.p0(ptr align 1 %marks.at, {flags},"
        store = f"call void @llvm.masked.store.v{lanes}i{bits}.p0({each} %p.new,"
        partial = f"""partial:
{trunc}  %p.on = {flags_call(lanes, short)}
  %p.m = {kept} {each} {idle})
{_change(marking, "p.", each, bits, f"{store} ptr align 1 %marks.at, {flags})", at="partial")}\
{marking.count("p.", each, bits)}
  br label %done
"""
    return f"""{_head(marking, "line", "i64 %start")}{_extent(size)}\
  %probe = add i64 %start, %skipped
  br label %find
{marking.find}
{_INSIDE}  br i1 {marking.known}, label %known, label %slow
known:
  %start.offset = sub i64 %offset, %skipped
{marking.place("%start.place", "%start.offset")}
  %marks.at = getelementptr i8, ptr %marks, i64 %start.place
  %is.full = icmp eq i32 %given, {(1 << lanes) - 1 - (1 << 32 if lanes == 32 else 0)}
  br i1 %is.full, label %full, label %partial
full:
  %m = load {words}, ptr %marks.at, align 1
{_change(marking, "", words, 64, f"store {words} %new, ptr %marks.at, align 1", at="full")}\
{marking.count("", words, 64)}
  br label %done
{partial}{_tail(marking, "%given", _OWN_ADDRESS.format(size=size))}"""


_OWN_ADDRESS: Final = """\
  %wide.index = zext i32 %index to i64
  %own.offset = mul i64 %wide.index, {size}
  %address = add i64 %start, %own.offset"""


def _each(marking: Marking) -> str:
    """Each lane has an address of its own, in memory."""
    size, lanes = marking.size, marking.lanes
    vector, steps = f"<{lanes} x i64>", ", ".join(f"i64 {size * n}" for n in range(lanes))
    short = "%given" if lanes == 32 else "%short.given"
    trunc = "" if lanes == 32 else f"  {short} = trunc i32 %given to i{lanes}\n"
    names = ", ".join(
        each.split()[-1] for each in marking.parameters.split(",")
    )  # The caller's parameters are handed on.
    typed = ", ".join(
        f"{each.split()[0]} {name}"
        for each, name in zip(marking.parameters.split(","), names.split(", "), strict=True)
    )
    return f"""{_head(marking, "each", "ptr %addresses")}\
  %all = load {vector}, ptr %addresses, align 8
  %lowest.at = getelementptr i64, ptr %addresses, i32 %lowest
  %probe = load i64, ptr %lowest.at
  %skipped = mul i64 %wide.lowest, {size}
  %start = sub i64 %probe, %skipped
  %start.one = insertelement {vector} poison, i64 %start, i32 0
  %starts = shufflevector {vector} %start.one, {vector} poison, <{lanes} x i32> zeroinitializer
  %expected = add {vector} %starts, <{steps}>
  %are.apart = icmp ne {vector} %all, %expected
  %apart = bitcast <{lanes} x i1> %are.apart to i{lanes}
{trunc}  %apart.active = and i{lanes} %apart, {short}
  %is.line = icmp eq i{lanes} %apart.active, 0
  br i1 %is.line, label %line.up, label %find
line.up:
  call void {marking.name}.line({typed}, i64 %start, i32 %given, i64 %line)
  ret void
{marking.find}
beyond:
  br label %slow
ready:
{_gather(marking, short)}\
{_tail(marking, "%given", _LOADED_ADDRESS)}"""


_LOADED_ADDRESS: Final = """\
  %address.at = getelementptr i64, ptr %addresses, i32 %index
  %address = load i64, ptr %address.at"""


def _gather(marking: Marking, short: str) -> str:
    """The marks of lanes that are all in one room, gathered; else to `slow` or `done`."""
    size, width, lanes, bits = marking.size, marking.width, marking.lanes, 8 * marking.width
    vector, each = f"<{lanes} x i64>", f"<{lanes} x i{bits}>"
    # Marks of units have bytes behind them, so that a gather may load more than it needs.
    is_narrow = width < min(_GATHERED) and marking.unit > 1
    if not is_narrow and width not in _GATHERED:
        return "  br label %slow\n"
    idle = splat(marking.neutral, each, bits)
    pointers = f"<{lanes} x ptr> align 1 %marks.at, <{lanes} x i1> %on"
    wide = 32 if is_narrow else bits
    full = f"<{lanes} x i{wide}>"
    gathered = f"call {full} @llvm.masked.gather.v{lanes}i{wide}.v{lanes}p0({pointers}, {full}"
    if is_narrow:
        load = f"""\
  %m.wide = {gathered} zeroinitializer)
  %m.all = trunc {full} %m.wide to {each}
  %m = select <{lanes} x i1> %on, {each} %m.all, {each} {idle}"""
        scatter = _scatter(marking, each, bits)
    else:
        load = f"  %m = {gathered} {idle})"
        name = f"@llvm.masked.scatter.v{lanes}i{bits}.v{lanes}p0"
        scatter = f"call void {name}({each} %new, {pointers})"
    elsewhere = "  br label %slow\n"
    if marking.is_alone:
        elsewhere = f"""\
  %to.low = sub {vector} zeroinitializer, %offsets
  %are.before = icmp uge {vector} %to.low, splat (i64 {size})
  %are.behind = icmp uge {vector} %offsets, %rooms
  %are.off = and <{lanes} x i1> %are.before, %are.behind
  %off = bitcast <{lanes} x i1> %are.off to i{lanes}
  %off.active = and i{lanes} %off, {short}
  %is.off.all = icmp eq i{lanes} %off.active, {short}
  br i1 %is.off.all, label %done, label %slow
"""
    # Lanes may share bytes, so `count` would count these twice.
    return f"""\
  %last = call i64 @llvm.usub.sat.i64(i64 %room, i64 {size - 1})
  %last.one = insertelement {vector} poison, i64 %last, i32 0
  %lasts = shufflevector {vector} %last.one, {vector} poison, <{lanes} x i32> zeroinitializer
  %room.one = insertelement {vector} poison, i64 %room, i32 0
  %rooms = shufflevector {vector} %room.one, {vector} poison, <{lanes} x i32> zeroinitializer
  %low.one = insertelement {vector} poison, i64 %low, i32 0
  %lows = shufflevector {vector} %low.one, {vector} poison, <{lanes} x i32> zeroinitializer
  %offsets = sub {vector} %all, %lows
  %are.in = icmp ult {vector} %offsets, %lasts
  %in = bitcast <{lanes} x i1> %are.in to i{lanes}
  %in.active = and i{lanes} %in, {short}
  %is.in.all = icmp eq i{lanes} %in.active, {short}
  br i1 %is.in.all, label %here, label %elsewhere
here:
  br i1 {marking.known}, label %gather, label %slow
elsewhere:
{elsewhere}
gather:
  %on = {flags_call(lanes, short)}
  %places = ashr {vector} %offsets, splat (i64 {_shift(marking.unit)})
  %marks.at = getelementptr i8, ptr %marks, {vector} %places
{load}
{_change(marking, "", each, bits, scatter, at="gather")}\
  br label %done
"""


def _scatter(marking: Marking, each: str, bits: int) -> str:
    """New marks of fewer bytes than processors scatter, lane by lane."""
    return f"""\
%news = alloca {each}, align 64
  store {each} %new, ptr %news, align 64
  br label %scatter
scatter:
  %left.to.store = phi i32 [%given, %gather.store], [%rest.to.store, %scatter.lane]
  %is.stored = icmp eq i32 %left.to.store, 0
  br i1 %is.stored, label %scattered, label %scatter.lane
scatter.lane:
  %stored.index = call i32 @llvm.cttz.i32(i32 %left.to.store, i1 true)
  %stored.lowered = sub i32 %left.to.store, 1
  %rest.to.store = and i32 %left.to.store, %stored.lowered
  %stored.address.at = getelementptr i64, ptr %addresses, i32 %stored.index
  %stored.address = load i64, ptr %stored.address.at
  %stored.offset = sub i64 %stored.address, %low
{marking.place("%stored.place", "%stored.offset")}
  %stored.at = getelementptr i8, ptr %marks, i64 %stored.place
  %new.at = getelementptr i{bits}, ptr %news, i32 %stored.index
  %new.one = load i{bits}, ptr %new.at
  store i{bits} %new.one, ptr %stored.at, align 1
  br label %scatter
scattered:"""
