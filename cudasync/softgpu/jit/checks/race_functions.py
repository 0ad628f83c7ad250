"""Cellar, jit. The functions that keep cells (`interface/race_records.py`), as LLVM text.

An access is compared with the cell of each word that it touches. This code knows the order that the
block's own barriers and full barriers of a warp establish, and recent answers of the check. If none
of these orders the access, it asks the check, which reports or remembers a race. Compiled code goes
on in any case, as if the earlier access had been ordered.
"""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.race_records import (
    LANE_BITS,
    LANE_SHIFT,
    MEMORIES,
    MOST_SITES,
    PENDING,
    SITE_BITS,
    SITE_SHIFT,
    STATE_WORDS,
    STRONG,
    THREAD_MASK,
    TIME_SHIFT,
    WARP_SHIFT,
    Ask,
    Head,
    State,
)
from cudasync.softgpu.jit.kernel_abi.job_record import Field

# The kind of an access that writes and does not read.
_WRITE: Final = 2
_SITES: Final = (1 << SITE_BITS) - 1


def at(base: str, name: str, word: int, index: str = "") -> str:
    """A pointer `%name.at` to a word, or to word `index` of an array that begins there."""
    if index:
        return (
            f"  %{name}.index = add i64 {index}, {word}\n"
            f"  %{name}.at = getelementptr i64, ptr {base}, i64 %{name}.index"
        )
    return f"  %{name}.at = getelementptr i64, ptr {base}, i64 {word}"


def read(base: str, name: str, word: int, index: str = "") -> str:
    """Load a word as `%name`."""
    return f"{at(base, name, word, index)}\n  %{name} = load i64, ptr %{name}.at"


def pointer(base: str, name: str, word: int) -> str:
    """Load a word as the pointer `%name`."""
    return f"{read(base, name + '.word', word)}\n  %{name} = inttoptr i64 %{name}.word to ptr"


def find_block(field: Field, word: int, changed: str) -> str:
    """Text after `entry`: `%state` of the slot, to block `done` without one or in the same block.

    In another block than the state has at `word`, to block `changed`, with that block's `%mark`.
    """
    return f"""\
{pointer("%job", "state", field)}
  %is.none = icmp eq ptr %state, null
  br i1 %is.none, label %done, label %look
look:
{read("%job", "width", Field.NCTAID_X)}
{read("%job", "height", Field.NCTAID_Y)}
  %wide.x = zext i32 %x to i64
  %wide.y = zext i32 %y to i64
  %wide.z = zext i32 %z to i64
  %lines = mul i64 %wide.z, %height
  %line = add i64 %lines, %wide.y
  %before = mul i64 %line, %width
  %block = add i64 %before, %wide.x
  %mark = add i64 %block, 1
{read("%state", "known", word)}
  %is.same = icmp eq i64 %known, %mark
  br i1 %is.same, label %done, label %{changed}"""


ENTER_NAME: Final = "@cudasync.race.enter"
# The state of the slot, set to the current block; null if races are not checked.
ENTER = f"""
define ptr {ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z) nounwind {{
entry:
{find_block(Field.RACES, State.BLOCK, "fresh")}
fresh:
  store i64 %mark, ptr %known.at
{read("%state", "warps", State.WARPS)}
  %first = mul i64 %block, %warps
{at("%state", "first.warp", State.FIRST_WARP)}
  store i64 %first, ptr %first.warp.at
{at("%state", "knows", State.KNOWS)}
  store i64 0, ptr %knows.at
{at("%state", "own", State.FLOOR)}
  call void @llvm.memset.p0.i64(ptr %own.at, i8 0, i64 {8 * (STATE_WORDS - State.FLOOR)}, i1 false)
{pointer("%state", "head", State.HEAD)}
{read("%head", "time", Head.TIME)}
  %later = add i64 %time, 1
  store i64 %later, ptr %time.at
  br label %warp
warp:
  %n = phi i64 [0, %fresh], [%n.next, %warp]
{at("%state", "floor", State.FLOOR, "%n")}
  store i64 %time, ptr %floor.at
{at("%state", "together", State.TOGETHER, "%n")}
  store i64 %time, ptr %together.at
  %n.next = add i64 %n, 1
  %are.more = icmp ult i64 %n.next, %warps
  br i1 %are.more, label %warp, label %done
done:
  ret ptr %state
}}
"""

CALL_NAME: Final = "@cudasync.race.ask"
_ARGUMENTS = range(8)
_CALL = "\n".join(
    f"{at('%head', f'a{n}', Head.ARGUMENTS + n)}\n  store i64 %v{n}, ptr %a{n}.at"
    for n in _ARGUMENTS
)
# Tells or asks the check; the callback's argument is the address of the state.
ASK = f"""
define i64 {CALL_NAME}(ptr %state, i64 %what, {", ".join(f"i64 %v{n}" for n in _ARGUMENTS)})
    nounwind {{
{pointer("%state", "head", State.HEAD)}
{at("%head", "asked", Head.ASKED)}
  store i64 %what, ptr %asked.at
{_CALL}
{pointer("%head", "callback", Head.CALLBACK)}
  %address = ptrtoint ptr %state to i64
  %answer = call i64 %callback(i64 %address)
  ret i64 %answer
}}
"""


CONFLICT_NAME: Final = "@cudasync.race.conflict"
# Two accesses that nothing known here orders. `values` are the values that the lanes store, each of
# `each` bytes, lane by lane within an element; null if values do not matter.
CONFLICT = f"""
define void {CONFLICT_NAME}(ptr %state, i64 %old, i64 %old.kind, i64 %me, i64 %kind, i64 %address,
    i64 %size, i64 %offset, ptr %values, i64 %each, i64 %lanes, ptr %addresses, i32 %spacing,
    i32 %mask) noinline nounwind {{
entry:
  %old.pair = shl i64 %old.kind, 2
  %kinds = or i64 %old.pair, %kind
  %are.writes = icmp eq i64 %kinds, {_WRITE << 2 | _WRITE}
  %has.values = icmp ne ptr %values, null
  %old.plain = and i64 %old, {STRONG | PENDING}
  %is.old.plain = icmp eq i64 %old.plain, 0
  %both.plain = and i1 %are.writes, %is.old.plain
  %compares = and i1 %both.plain, %has.values
  br i1 %compares, label %values.look, label %memory
; Of one instruction: the lane before stores what is not in memory yet.
values.look:
  %lane.high = lshr i64 %me, {LANE_SHIFT}
  %lane = and i64 %lane.high, {(1 << LANE_BITS) - 1}
  %other.high = lshr i64 %old, {LANE_SHIFT}
  %other = and i64 %other.high, {(1 << LANE_BITS) - 1}
  %element = udiv i64 %offset, %each
  %inside = urem i64 %offset, %each
  %row = mul i64 %element, %lanes
  %mine.index = add i64 %row, %lane
  %mine.bytes = mul i64 %mine.index, %each
  %mine.byte = add i64 %mine.bytes, %inside
  %mine = getelementptr i8, ptr %values, i64 %mine.byte
  %differs.by = xor i64 %old, %me
  %same.bits = and i64 %differs.by, {~((1 << WARP_SHIFT) - (1 << LANE_SHIFT)) & (2**64 - 2)}
  %is.same.turn = icmp eq i64 %same.bits, 0
  br i1 %is.same.turn, label %turn, label %compare
turn:
  %other.short = trunc i64 %other to i32
  %lane.short = trunc i64 %lane to i32
  %other.place = mul i32 %other.short, %spacing
  %lane.place = mul i32 %lane.short, %spacing
  %other.at = getelementptr i64, ptr %addresses, i32 %other.place
  %lane.at = getelementptr i64, ptr %addresses, i32 %lane.place
  %other.address = load i64, ptr %other.at
  %lane.address = load i64, ptr %lane.at
  %is.one.address = icmp eq i64 %other.address, %lane.address
  %other.bit = shl i32 1, %other.short
  %other.active = and i32 %mask, %other.bit
  %is.active = icmp ne i32 %other.active, 0
  %is.this.turn = and i1 %is.one.address, %is.active
  %its.index = add i64 %row, %other
  %its.bytes = mul i64 %its.index, %each
  %its.byte = add i64 %its.bytes, %inside
  %its = getelementptr i8, ptr %values, i64 %its.byte
  br label %compare
compare:
  %from.turn = phi i1 [false, %values.look], [%is.this.turn, %turn]
  %its.value = phi ptr [null, %values.look], [%its, %turn]
  %here = inttoptr i64 %address to ptr
  %there = select i1 %from.turn, ptr %its.value, ptr %here
  br label %byte
byte:
  %n = phi i64 [0, %compare], [%n.next, %byte.same]
  %is.equal = icmp uge i64 %n, %size
  br i1 %is.equal, label %done, label %byte.look
byte.look:
  %one.at = getelementptr i8, ptr %mine, i64 %n
  %two.at = getelementptr i8, ptr %there, i64 %n
  %one = load i8, ptr %one.at
  %two = load i8, ptr %two.at
  %is.byte.same = icmp eq i8 %one, %two
  br i1 %is.byte.same, label %byte.same, label %memory
byte.same:
  %n.next = add i64 %n, 1
  br label %byte
; What was told lately, or known lately.
memory:
{pointer("%state", "head", State.HEAD)}
{pointer("%head", "told", Head.TOLD)}
  %old.site.high = lshr i64 %old, {SITE_SHIFT}
  %old.site = and i64 %old.site.high, {_SITES}
  %site.high = lshr i64 %me, {SITE_SHIFT}
  %site = and i64 %site.high, {_SITES}
  %pair.row = mul i64 %old.site, {MOST_SITES}
  %pair = add i64 %pair.row, %site
  %told.at = getelementptr i8, ptr %told, i64 %pair
  %was.told = load i8, ptr %told.at
  %is.new = icmp eq i8 %was.told, 0
  br i1 %is.new, label %recall, label %done
recall:
  %old.time = lshr i64 %old, {TIME_SHIFT}
  %old.thread.high = and i64 %old, {THREAD_MASK}
  %old.thread = lshr i64 %old.thread.high, {LANE_SHIFT}
  %my.thread.high = and i64 %me, {THREAD_MASK}
  %my.thread = shl i64 %my.thread.high, {TIME_SHIFT - LANE_SHIFT - LANE_BITS}
  %pending = and i64 %old, {PENDING}
  %pending.tag = shl i64 %pending, 61
  %tag.low = xor i64 %old.thread, %my.thread
  %tag = xor i64 %tag.low, %pending.tag
  %mixed = mul i64 %tag, 11400714819323198485
  %index.high = lshr i64 %mixed, {64 - (MEMORIES.bit_length() - 1)}
  %index = shl i64 %index.high, 1
{read("%state", "kept", State.MEMORY, "%index")}
{read("%state", "until", State.MEMORY + 1, "%index")}
  %is.kept = icmp eq i64 %kept, %tag
  %is.early = icmp ule i64 %old.time, %until
  %is.known = and i1 %is.kept, %is.early
  br i1 %is.known, label %done, label %ask
ask:
  %answer = call i64 {CALL_NAME}(ptr %state, i64 {Ask.CONFLICT.value}, i64 %old, i64 %kinds,
    i64 %me, i64 %address, i64 %size, i64 0, i64 0, i64 0)
  %is.ordered = icmp uge i64 %answer, %old.time
  br i1 %is.ordered, label %keep, label %tell
keep:
  store i64 %tag, ptr %kept.at
  store i64 %answer, ptr %until.at
  br label %done
tell:
  store i8 1, ptr %told.at
  br label %done
done:
  ret void
}}
"""


FUNCTIONS = {
    ENTER_NAME: ENTER,
    CALL_NAME: ASK,
    CONFLICT_NAME: CONFLICT,
}
