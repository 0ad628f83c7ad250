"""Cellar, jit. Compares the plain accesses of a whole warp with eight cells at a time.

The lanes' words must be equally far apart, so that no two lanes meet. If no access is unordered
with an earlier one, and all lanes' cells have the same room for a reader, the cells are updated
here as `race_cells` would do it lane by lane. Everything else is left to the loop over lanes.
"""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.race_records import (
    CELL_BYTES,
    LANE_SHIFT,
    PENDING,
    SPLIT,
    THREAD_MASK,
    TIME_SHIFT,
    WARP_BITS,
    WARP_MASK,
    WARP_SHIFT,
)

assert CELL_BYTES == 32, "an entry of the writer and three of readers"
_GROUP: Final = 8
_ENTRIES: Final = 4 * _GROUP
_WIDE: Final = f"<{_ENTRIES} x i64>"
_CELL: Final = "<4 x i64>"
# Bits of a group's entries: those of writers, and of each reader.
_WRITERS, _FIRST, _SECOND, _THIRD = 0x11111111, 0x22222222, 0x44444444, -0x77777778
# Positions at which a rotation of the readers compares the first with the second, or the third.
_TWINS: Final = _FIRST | _THIRD


def _spread(name: str, value: str) -> str:
    """A vector of the same value for each entry."""
    zeros = f"<{_ENTRIES} x i32> zeroinitializer"
    return f"""\
  %{name}.one = insertelement {_WIDE} poison, i64 {value}, i32 0
  %{name} = shufflevector {_WIDE} %{name}.one, {_WIDE} poison, {zeros}"""


def _places(name: str) -> str:
    """Pointers to the cells of a group's lanes."""
    return "\n".join(
        f"""  %{name}.offset.{n} = add i64 %{name}.offset.{n - 1}, %cell.step
  %{name}.{n} = getelementptr i8, ptr %cells, i64 %{name}.offset.{n}"""
        if n
        else f"""  %{name}.offset.0 = add i64 %{name}.begin, 0
  %{name}.0 = getelementptr i8, ptr %cells, i64 %{name}.offset.0"""
        for n in range(_GROUP)
    )


def _load(name: str) -> str:
    """The entries of a group's cells as one vector."""
    lines = [_places(name)]
    lines += [f"  %{name}.c{n} = load {_CELL}, ptr %{name}.{n}, align 8" for n in range(_GROUP)]
    parts, width = [f"%{name}.c{n}" for n in range(_GROUP)], 4
    while len(parts) > 1:
        joined = []
        order = ", ".join(f"i32 {n}" for n in range(2 * width))
        for n in range(0, len(parts), 2):
            both = f"%{name}.{2 * width}.{n}"
            lines.append(
                f"  {both} = shufflevector <{width} x i64> {parts[n]}, <{width} x i64>"
                f" {parts[n + 1]}, <{2 * width} x i32> <{order}>"
            )
            joined.append(both)
        parts, width = joined, 2 * width
    return "\n".join([*lines, f"  %{name}.all = add {_WIDE} {parts[0]}, zeroinitializer"])


def _store(name: str, vector: str) -> str:
    """Store a vector as the entries of the group's cells."""
    lines = []
    for n in range(_GROUP):
        order = ", ".join(f"i32 {4 * n + k}" for k in range(4))
        lines.append(
            f"  %{name}.s{n} = shufflevector {_WIDE} {vector}, {_WIDE} poison, <4 x i32> <{order}>"
        )
        lines.append(f"  store {_CELL} %{name}.s{n}, ptr %{name}.{n}, align 8")
    return "\n".join(lines)


def _bits(name: str, flags: str) -> str:
    return f"  %{name} = bitcast <{_ENTRIES} x i1> {flags} to i{_ENTRIES}"


_LANES: Final = ", ".join(f"i64 {(n // 4) << LANE_SHIFT}" for n in range(_ENTRIES))
_TURNED: Final = ", ".join(f"i32 {4 * (n // 4) + (0, 2, 3, 1)[n % 4]}" for n in range(_ENTRIES))


def _put(name: str, mask: int, keeps: bool) -> str:
    """A loop over groups that stores this access's entry at the positions of a mask."""
    flags = ", ".join(f"i1 {'true' if mask >> n & 1 else 'false'}" for n in range(_ENTRIES))
    old = f"{_load(name)}\n" if keeps else f"{_places(name)}\n"
    other = f"%{name}.all" if keeps else "zeroinitializer"
    return f"""\
{name}:
  br label %{name}.next
{name}.next:
  %{name}.lane = phi i64 [0, %{name}], [%{name}.lane.next, %{name}.next]
  %{name}.far = mul i64 %{name}.lane, %cell.step
  %{name}.begin = add i64 %first.cell, %{name}.far
  %{name}.lane.bits = shl i64 %{name}.lane, {LANE_SHIFT}
  %{name}.base = or i64 %own, %{name}.lane.bits
{_spread(f"{name}.bases", f"%{name}.base")}
  %{name}.me = or {_WIDE} %{name}.bases, <{_LANES}>
{old}\
  %{name}.new = select <{_ENTRIES} x i1> <{flags}>, {_WIDE} %{name}.me, {_WIDE} {other}
{_store(name, f"%{name}.new")}
  %{name}.lane.next = add i64 %{name}.lane, {_GROUP}
  %{name}.more = icmp ult i64 %{name}.lane.next, %lanes
  br i1 %{name}.more, label %{name}.next, label %handled
"""


LINE_NAME: Final = "@cudasync.race.line"
# Whether an entry is later than the times that order it. Time is an entry's highest part, so that
# whole entries are compared. In shared memory, what other blocks did is over at the floor.
_AFTER_NEAR: Final = f"  %are.after.near = icmp ugt {_WIDE} %old.all, %nears"
_AFTER_SHARED: Final = f"""\
{_AFTER_NEAR}
  %are.after.far = icmp ugt {_WIDE} %old.all, %floors"""
_AFTER_GLOBAL: Final = f"""\
{_AFTER_NEAR}
  %are.after.floor = icmp ugt {_WIDE} %old.all, %floors
  %numbers = lshr {_WIDE} %old.all, splat (i64 {WARP_SHIFT})
  %in.block = sub {_WIDE} %numbers, %firsts
  %in.block.low = and {_WIDE} %in.block, splat (i64 {(1 << WARP_BITS) - 1})
  %are.own = icmp ult {_WIDE} %in.block.low, %counts
  %are.some = icmp ugt {_WIDE} %old.all, splat (i64 {(1 << TIME_SHIFT) - 1})
  %are.after.far = select <{_ENTRIES} x i1> %are.own, <{_ENTRIES} x i1> %are.after.floor,
    <{_ENTRIES} x i1> %are.some"""
# Whether one warp has two places, of which one would give way.
_FIND_TWINS: Final = f"""\
  %turned = shufflevector {_WIDE} %old.all, {_WIDE} poison, <{_ENTRIES} x i32> <{_TURNED}>
  %apart = xor {_WIDE} %old.all, %turned
  %apart.warp = and {_WIDE} %apart, splat (i64 {WARP_MASK})
  %are.twins = icmp eq {_WIDE} %apart.warp, zeroinitializer
{_bits("twins.here", "%are.twins")}"""


def _latest(name: str, time: str) -> str:
    """A vector of the latest entry that a time covers."""
    return f"""\
  %{name}.next = add i64 {time}, 1
  %{name}.high = shl i64 %{name}.next, {TIME_SHIFT}
  %{name}.latest = sub i64 %{name}.high, 1
{_spread(name, f"%{name}.latest")}"""


def line_name(*, reads: bool, is_shared: bool) -> str:
    """The function for plain reads or writes, of shared or of global memory."""
    return f"{LINE_NAME}.{'read' if reads else 'write'}.{'shared' if is_shared else 'global'}"


def _line(*, reads: bool, is_shared: bool) -> str:
    name = line_name(reads=reads, is_shared=is_shared)
    after = _AFTER_SHARED if is_shared else _AFTER_GLOBAL
    twins = _FIND_TWINS if reads else "  %twins.here = add i32 0, 0"
    return f"""
; Handles the words of all lanes, `stride` bytes apart from `offset` on; returns whether it did.
define i1 {name}(ptr %cells, i64 %offset, i64 %stride, i64 %own, i64 %lanes,
    i64 %first, i64 %warps, i64 %floor, i64 %near) noinline nounwind {{
entry:
  %first.cell = shl i64 %offset, 3
  %cell.step = shl i64 %stride, 3
{_spread("firsts", "%first")}
{_spread("counts", "%warps")}
{_latest("floors", "%floor")}
{_latest("nears", "%near")}
  br label %look
look:
  %lane = phi i64 [0, %entry], [%lane.next, %look]
  %any = phi i32 [0, %entry], [%any.now, %look]
  %all = phi i32 [-1, %entry], [%all.now, %look]
  %twins = phi i32 [0, %entry], [%twins.now, %look]
  %far = mul i64 %lane, %cell.step
  %old.begin = add i64 %first.cell, %far
  %lane.bits = shl i64 %lane, {LANE_SHIFT}
  %base = or i64 %own, %lane.bits
{_spread("bases", "%base")}
  %me = or {_WIDE} %bases, <{_LANES}>
{_load("old")}
  %differ = xor {_WIDE} %old.all, %me
  %thread = and {_WIDE} %differ, splat (i64 {THREAD_MASK})
  %are.others = icmp ne {_WIDE} %thread, zeroinitializer
  %warp = and {_WIDE} %differ, splat (i64 {WARP_MASK})
  %are.near = icmp eq {_WIDE} %warp, zeroinitializer
{after}
  %are.after = select <{_ENTRIES} x i1> %are.near, <{_ENTRIES} x i1> %are.after.near,
    <{_ENTRIES} x i1> %are.after.far
  %are.open = and <{_ENTRIES} x i1> %are.others, %are.after
{_bits("open", "%are.open")}
  ; A word that is split, or whose writer is a pending copy, counts as open.
  %special = and {_WIDE} %old.all, splat (i64 {SPLIT | PENDING})
  %are.special = icmp ne {_WIDE} %special, zeroinitializer
{_bits("special.all", "%are.special")}
  %special.bits = and i32 %special.all, {_WRITERS}
  %open.now = or i32 %open, %special.bits
  %any.now = or i32 %any, %open.now
  %all.now = and i32 %all, %open.now
{twins}
  %twins.now = or i32 %twins, %twins.here
  %lane.next = add i64 %lane, {_GROUP}
  %are.more = icmp ult i64 %lane.next, %lanes
  br i1 %are.more, label %look, label %judge
{_READS if reads else _WRITES}\
handled:
  ret i1 true
left:
  ret i1 false
}}
"""


_WRITES: Final = f"""\
judge:
  %is.free = icmp eq i32 %any.now, 0
  br i1 %is.free, label %written, label %left
{_put("written", _WRITERS, keeps=False)}"""


def _tried(label: str, number: int, mask: object) -> str:
    """The block that looks whether this place of all cells is free, then whether it is taken."""
    return f"""\
{label}:
  %any.{number} = and i32 %any.now, {mask}
  %is.free.{number} = icmp eq i32 %any.{number}, 0
  br i1 %is.free.{number}, label %put.{number}, label %taken.{number}
taken.{number}:
  %all.{number} = and i32 %all.now, {mask}
  %is.taken.{number} = icmp eq i32 %all.{number}, {mask}
"""


_READS: Final = f"""\
judge:
  %writers = and i32 %any.now, {_WRITERS}
  %is.after.write = icmp ne i32 %writers, 0
  br i1 %is.after.write, label %left, label %reads
{_tried("reads", 1, _FIRST)}\
  br i1 %is.taken.1, label %second, label %left
{_tried("second", 2, _SECOND)}\
  br i1 %is.taken.2, label %third, label %left
{_tried("third", 3, _THIRD)}\
  %some.twins = and i32 %twins.now, {_TWINS}
  %are.no.twins = icmp eq i32 %some.twins, 0
  %is.full = and i1 %is.taken.3, %are.no.twins
  br i1 %is.full, label %handled, label %left
{_put("put.1", _FIRST, keeps=True)}\
{_put("put.2", _SECOND, keeps=True)}\
{_put("put.3", _THIRD, keeps=True)}"""
_WAYS: Final = (True, False)
LINES: Final = {
    line_name(reads=reads, is_shared=is_shared): _line(reads=reads, is_shared=is_shared)
    for reads in _WAYS
    for is_shared in _WAYS
}

STRIDE_NAME: Final = "@cudasync.race.stride"


def _stride(lanes: int) -> str:
    vector, steps = f"<{lanes} x i64>", ", ".join(f"i64 {n}" for n in range(lanes))
    zeros = f"<{lanes} x i32> zeroinitializer"
    return f"""
define i64 {STRIDE_NAME}.v{lanes}(ptr %addresses) nounwind {{
  %all = load {vector}, ptr %addresses, align 8
  %start = extractelement {vector} %all, i32 0
  %second = extractelement {vector} %all, i32 1
  %stride = sub i64 %second, %start
  %start.one = insertelement {vector} poison, i64 %start, i32 0
  %starts = shufflevector {vector} %start.one, {vector} poison, {zeros}
  %stride.one = insertelement {vector} poison, i64 %stride, i32 0
  %strides = shufflevector {vector} %stride.one, {vector} poison, {zeros}
  %far = mul {vector} %strides, <{steps}>
  %expected = add {vector} %starts, %far
  %are.off = icmp ne {vector} %all, %expected
  %off = bitcast <{lanes} x i1> %are.off to i{lanes}
  %is.even = icmp eq i{lanes} %off, 0
  %both = or i64 %start, %stride
  %low = and i64 %both, 3
  %are.words = icmp eq i64 %low, 0
  %is.line = and i1 %is.even, %are.words
  %found = select i1 %is.line, i64 %stride, i64 0
  ret i64 %found
}}
"""


# The distance of the lanes' addresses, if they are words that are equally far apart; else 0.
STRIDE: Final = "".join(map(_stride, (16, 32)))
FUNCTIONS = {**LINES, STRIDE_NAME: STRIDE}
