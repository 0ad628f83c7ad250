"""Cellar, jit. Splits an access of a warp into lanes, words and bytes; see `race_functions`."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.race_records import (
    CELL_BYTES,
    LANE_SHIFT,
    NEAR_NAME,
    PENDING,
    READERS,
    SPLIT,
    SPLIT_BYTES,
    STRONG,
    THREAD_MASK,
    TIME_SHIFT,
    WARP_MASK,
    WARP_SHIFT,
    Head,
    State,
)
from cudasync.softgpu.jit.checks.race_cells import ATOMIC, CELL, CELL_NAME, READ
from cudasync.softgpu.jit.checks.race_functions import ENTER_NAME, pointer, read
from cudasync.softgpu.jit.checks.race_lines import STRIDE_NAME, line_name
from cudasync.softgpu.jit.checks.race_rows import MEETS_NAME, ROW_NAME

_COPIED = range(1 + READERS)
_TO_BYTES = "\n".join(
    f"""  %from.{n} = getelementptr i64, ptr %cell, i64 {n}
  %entry.{n} = load i64, ptr %from.{n}"""
    for n in _COPIED
) + "\n".join(
    f"""
  %to.{b}.{n} = getelementptr i64, ptr %bytes, i64 {b * (1 + READERS) + n}
  store i64 %entry.{n}, ptr %to.{b}.{n}"""
    for b in range(4)
    for n in _COPIED
)
_COMMON: Final = """i64 %me, i64 %kind, i64 %first, i64 %warps,
    i64 %floor, i64 %near, i64 %beyond"""
_REST: Final = """ptr %values, i64 %each, i64 %lanes, ptr %addresses, i32 %spacing, i32 %mask"""

WORDS_NAME: Final = "@cudasync.race.words"
# An access of one lane to `size` bytes from `offset` on, which have cells.
WORDS = f"""
define internal void {WORDS_NAME}(ptr %state, ptr %cells, ptr %splits, i64 %start, i64 %offset,
    i64 %size, {_COMMON}, {_REST}) alwaysinline nounwind {{
entry:
  %behind = add i64 %offset, %size
  %word.first = lshr i64 %offset, 2
  %last.byte = sub i64 %behind, 1
  %word.last = lshr i64 %last.byte, 2
  br label %word
word:
  %n = phi i64 [%word.first, %entry], [%n.next, %word.done]
  %word.start = shl i64 %n, 2
  %word.end = add i64 %word.start, 4
  %is.low = icmp ult i64 %word.start, %offset
  %low = select i1 %is.low, i64 %offset, i64 %word.start
  %is.high = icmp ugt i64 %word.end, %behind
  %high = select i1 %is.high, i64 %behind, i64 %word.end
  %length = sub i64 %high, %low
  %is.whole = icmp eq i64 %length, 4
  %cell.offset = mul i64 %n, {CELL_BYTES}
  %cell = getelementptr i8, ptr %cells, i64 %cell.offset
  %last = load i64, ptr %cell
  %split = and i64 %last, {SPLIT}
  %is.split = icmp ne i64 %split, 0
  %is.apart = xor i1 %is.split, true
  %is.plain = and i1 %is.whole, %is.apart
  br i1 %is.plain, label %plain, label %careful
plain:
  ; What the thread did itself, or what a barrier lies behind of, is all that most cells have.
  %entries = load <4 x i64>, ptr %cell
  %me.one = insertelement <4 x i64> poison, i64 %me, i32 0
  %mine = shufflevector <4 x i64> %me.one, <4 x i64> poison, <4 x i32> zeroinitializer
  %differ = xor <4 x i64> %entries, %mine
  %differ.thread = and <4 x i64> %differ, splat (i64 {THREAD_MASK})
  %are.mine = icmp eq <4 x i64> %differ.thread, zeroinitializer
  %times = lshr <4 x i64> %entries, splat (i64 {TIME_SHIFT})
  %is.beyond = icmp ne i64 %beyond, 0
  %limit = select i1 %is.beyond, i64 %floor, i64 0
  %limit.one = insertelement <4 x i64> poison, i64 %limit, i32 0
  %limits = shufflevector <4 x i64> %limit.one, <4 x i64> poison, <4 x i32> zeroinitializer
  %are.past = icmp ule <4 x i64> %times, %limits
  %are.easy = or <4 x i1> %are.mine, %are.past
  %easy.bits = bitcast <4 x i1> %are.easy to i4
  %are.all.easy = icmp eq i4 %easy.bits, -1
  %special.of.me = and i64 %me, {STRONG | PENDING}
  %special.of.last = and i64 %last, {PENDING}
  %special = or i64 %special.of.me, %special.of.last
  %is.usual = icmp eq i64 %special, 0
  %is.easy = and i1 %are.all.easy, %is.usual
  br i1 %is.easy, label %easy, label %hard
easy:
  %is.read = icmp eq i64 %kind, {READ}
  %writer = select i1 %is.read, i64 %last, i64 %me
  %reader = select i1 %is.read, i64 %me, i64 0
  %cell.one = insertelement <4 x i64> zeroinitializer, i64 %writer, i32 0
  %cell.both = insertelement <4 x i64> %cell.one, i64 %reader, i32 1
  store <4 x i64> %cell.both, ptr %cell
  br label %word.done
hard:
  %address = add i64 %start, %low
  %inside = sub i64 %low, %offset
  call void {CELL_NAME}(ptr %state, ptr %cell, {_COMMON}, i64 %address, i64 4, i64 %inside, {_REST})
  br label %word.done
careful:
  %bytes.offset = mul i64 %n, {SPLIT_BYTES}
  %bytes = getelementptr i8, ptr %splits, i64 %bytes.offset
  br i1 %is.split, label %byte.begin, label %split.now
split.now:
{_TO_BYTES}
  %marked = or i64 %last, {SPLIT}
  store i64 %marked, ptr %cell
  br label %byte.begin
byte.begin:
  br label %byte
byte:
  %b = phi i64 [%low, %byte.begin], [%b.next, %byte]
  %b.in.word = and i64 %b, 3
  %b.offset = mul i64 %b.in.word, {CELL_BYTES}
  %b.cell = getelementptr i8, ptr %bytes, i64 %b.offset
  %b.address = add i64 %start, %b
  %b.inside = sub i64 %b, %offset
  call void {CELL_NAME}(ptr %state, ptr %b.cell, {_COMMON}, i64 %b.address, i64 1, i64 %b.inside,
    {_REST})
  %b.next = add i64 %b, 1
  %are.more = icmp ult i64 %b.next, %high
  br i1 %are.more, label %byte, label %word.done
word.done:
  %n.next = add i64 %n, 1
  %is.over = icmp ugt i64 %n.next, %word.last
  br i1 %is.over, label %done, label %word
done:
  ret void
}}
"""


def _call_lines() -> str:
    """From `line.shared` or `line.global`: all lanes at once, else one by one."""
    text = []
    for room, start, cells in (
        ("shared", "%shared", "%shared.cells"),
        ("global", "%line.row.start", "%line.row.cells"),
    ):
        text.append(f"""\
line.{room}:
  %{room}.offset = sub i64 %begin.address, {start}
  %{room}.is.read = icmp eq i64 %kind, {READ}
  br i1 %{room}.is.read, label %{room}.read, label %{room}.write""")
        for way in ("read", "write"):
            name = line_name(reads=way == "read", is_shared=room == "shared")
            text.append(f"""\
{room}.{way}:
  %{room}.{way}.done = call i1 {name}(ptr {cells}, i64 %{room}.offset, i64 %step,
    i64 %own.bits, i64 %lanes, i64 %first, i64 %warps, i64 %floor, i64 %near)
  br i1 %{room}.{way}.done, label %leave, label %one.by.one""")
    return "\n".join(text)


NOTE_NAME: Final = "@cudasync.race.note"
# An access of the lanes of a mask; `where` is 0 for shared memory, 1 for global, 2 for either.
NOTE = f"""
define void {NOTE_NAME}(ptr %job, i32 %x, i32 %y, i32 %z, i32 %warp, i64 %bits, i64 %kind,
    i64 %where, i64 %size, {_REST}) nounwind {{
entry:
  %state = call ptr {ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z)
  %is.none = icmp eq ptr %state, null
  br i1 %is.none, label %leave, label %rooms
rooms:
{pointer("%state", "head", State.HEAD)}
{read("%head", "row.count", Head.ROW_COUNT)}
  %is.global = icmp eq i64 %where, 1
  %are.no.rows = icmp eq i64 %row.count, 0
  %is.nowhere = and i1 %is.global, %are.no.rows
  br i1 %is.nowhere, label %leave, label %begin
begin:
{read("%head", "time", Head.TIME)}
{read("%state", "first", State.FIRST_WARP)}
{read("%state", "warps", State.WARPS)}
  %wide.warp = zext i32 %warp to i64
{read("%state", "floor", State.FLOOR, "%wide.warp")}
{read("%state", "together", State.TOGETHER, "%wide.warp")}
  %is.closer = icmp ugt i64 %together, %floor
  %near = select i1 %is.closer, i64 %together, i64 %floor
  %own.warp = add i64 %first, %wide.warp
  %warp.high = shl i64 %own.warp, {WARP_SHIFT}
  %warp.bits = and i64 %warp.high, {WARP_MASK}
  %time.bits = shl i64 %time, {TIME_SHIFT}
  %most.bits = or i64 %warp.bits, %time.bits
  %own.bits = or i64 %most.bits, %bits
{read("%state", "shared", State.SHARED)}
{read("%state", "shared.bytes", State.SHARED_BYTES)}
{pointer("%state", "shared.cells", State.CELLS)}
{pointer("%state", "shared.splits", State.SPLIT_CELLS)}
  %is.shared = icmp eq i64 %where, 0
  %is.no.room = or i1 %is.shared, %are.no.rows
  %special = and i64 %bits, {STRONG | PENDING}
  %is.plain = icmp eq i64 %special, 0
  %is.word = icmp eq i64 %size, 4
  %is.spread = icmp ne i32 %spacing, 0
  %is.simple = icmp ne i64 %kind, {ATOMIC}
  %behind.lanes = shl i64 1, %lanes
  %full.wide = sub i64 %behind.lanes, 1
  %full = trunc i64 %full.wide to i32
  %is.full = icmp eq i32 %mask, %full
  %is.plain.word = and i1 %is.plain, %is.word
  %is.spread.simple = and i1 %is.spread, %is.simple
  %is.candidate = and i1 %is.plain.word, %is.spread.simple
  %is.line = and i1 %is.candidate, %is.full
  br i1 %is.line, label %stride, label %one.by.one
stride:
  %is.warp = icmp eq i64 %lanes, 32
  br i1 %is.warp, label %stride.32, label %stride.16
stride.32:
  %found.32 = call i64 {STRIDE_NAME}.v32(ptr %addresses)
  br label %span
stride.16:
  %found.16 = call i64 {STRIDE_NAME}.v16(ptr %addresses)
  br label %span
span:
  %step = phi i64 [%found.32, %stride.32], [%found.16, %stride.16]
  %is.uneven = icmp eq i64 %step, 0
  br i1 %is.uneven, label %one.by.one, label %even
even:
  %begin.address = load i64, ptr %addresses
  %steps = sub i64 %lanes, 1
  %reach = mul i64 %steps, %step
  %end.address = add i64 %begin.address, %reach
  %is.up = icmp sgt i64 %step, 0
  %low.address = select i1 %is.up, i64 %begin.address, i64 %end.address
  %high.address = select i1 %is.up, i64 %end.address, i64 %begin.address
  %between = sub i64 %high.address, %low.address
  %extent = add i64 %between, 4
  br i1 %is.global, label %line.rows, label %line.window
line.window:
  %low.offset = sub i64 %low.address, %shared
  %high.offset = add i64 %low.offset, %extent
  %is.low.in = icmp ult i64 %low.offset, %shared.bytes
  %is.high.in = icmp ule i64 %high.offset, %shared.bytes
  %is.short = icmp ule i64 %extent, %shared.bytes
  %is.in.low = and i1 %is.low.in, %is.high.in
  %is.in.window = and i1 %is.in.low, %is.short
  br i1 %is.in.window, label %line.shared, label %line.outside
line.outside:
  br i1 %is.shared, label %one.by.one, label %line.rows
line.rows:
  %line.row = call ptr {ROW_NAME}(ptr %state, i64 %low.address, i64 %extent)
  %is.no.row = icmp eq ptr %line.row, null
  br i1 %is.no.row, label %line.apart, label %line.row.found
line.apart:
  %is.met = call i1 {MEETS_NAME}(ptr %state, i64 %low.address, i64 %extent)
  br i1 %is.met, label %one.by.one, label %leave
line.row.found:
  %line.row.start = load i64, ptr %line.row
{pointer("%line.row", "line.row.cells", 2)}
  br label %line.global
{_call_lines()}
one.by.one:
  ; Of readers of one word a cell has no room for more than the first.
  %without.1 = sub i32 %mask, 1
  %mask.1 = and i32 %mask, %without.1
  %without.2 = sub i32 %mask.1, 1
  %mask.2 = and i32 %mask.1, %without.2
  %without.3 = sub i32 %mask.2, 1
  %mask.3 = and i32 %mask.2, %without.3
  %mask.first = xor i32 %mask, %mask.3
  %is.a.read = icmp eq i64 %kind, {READ}
  %is.one = xor i1 %is.spread, true
  %is.one.read = and i1 %is.one, %is.a.read
  %visited = select i1 %is.one.read, i32 %mask.first, i32 %mask
  br label %next
next:
  %left = phi i32 [%visited, %one.by.one], [%rest, %went]
  %before = phi i64 [0, %one.by.one], [%address, %went]
  %alike = phi i32 [0, %one.by.one], [%alike.now, %went]
  %is.over = icmp eq i32 %left, 0
  br i1 %is.over, label %leave, label %lane
lane:
  %index = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lowered = sub i32 %left, 1
  %rest = and i32 %left, %lowered
  %place = mul i32 %index, %spacing
  %address.at = getelementptr i64, ptr %addresses, i32 %place
  %address = load i64, ptr %address.at
  %is.alike = icmp eq i64 %address, %before
  %alike.more = add i32 %alike, 1
  %alike.now = select i1 %is.alike, i32 %alike.more, i32 0
  %wide.index = zext i32 %index to i64
  %lane.bits = shl i64 %wide.index, {LANE_SHIFT}
  %me = or i64 %own.bits, %lane.bits
  ; Of readers of one word a cell has no room for more.
  %is.many = icmp uge i32 %alike.now, {READERS}
  %is.read = icmp eq i64 %kind, 1
  %is.spare = and i1 %is.many, %is.read
  br i1 %is.spare, label %went, label %look
look:
  br i1 %is.global, label %rows, label %window
window:
  %offset = sub i64 %address, %shared
  %behind = add i64 %offset, %size
  %is.begun = icmp ult i64 %offset, %shared.bytes
  %is.ended = icmp ule i64 %behind, %shared.bytes
  %is.inside = and i1 %is.begun, %is.ended
  br i1 %is.inside, label %inside, label %outside
outside:
  br i1 %is.no.room, label %went, label %rows
inside:
  call void {WORDS_NAME}(ptr %state, ptr %shared.cells, ptr %shared.splits, i64 %shared,
    i64 %offset, i64 %size, {_COMMON.replace("%beyond", "-1")}, {_REST})
  br label %went
rows:
  %row = call ptr {ROW_NAME}(ptr %state, i64 %address, i64 %size)
  %is.unwatched = icmp eq ptr %row, null
  br i1 %is.unwatched, label %went, label %watched
watched:
  %start = load i64, ptr %row
{pointer("%row", "cells", 2)}
{pointer("%row", "splits", 3)}
  %row.offset = sub i64 %address, %start
  call void {WORDS_NAME}(ptr %state, ptr %cells, ptr %splits, i64 %start, i64 %row.offset,
    i64 %size, {_COMMON.replace("%beyond", "0")}, {_REST})
  br label %went
went:
  br label %next
leave:
  ret void
}}
"""

# The same function. Its name in a text shows that threads may race on shared memory.
_HEADER = """ptr %job, i32 %x, i32 %y, i32 %z, i32 %warp, i64 %bits, i64 %kind, i64 %where,
    i64 %size"""
NEAR = f"""
define void {NEAR_NAME}({_HEADER}, {_REST}) nounwind {{
  musttail call void {NOTE_NAME}({_HEADER}, {_REST})
  ret void
}}
"""

# Functions that run for every lane are in the same text as their caller, and are inlined.
FUNCTIONS = {NEAR_NAME: NEAR, NOTE_NAME: NOTE + WORDS + CELL}
