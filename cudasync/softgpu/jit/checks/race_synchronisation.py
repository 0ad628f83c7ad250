"""Cellar, jit. The effect of barriers, fences and the like on cells: see `race_functions`."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.race_records import MOST_WARPS, Ask, Head, State, Strength
from cudasync.softgpu.jit.checks.race_functions import CALL_NAME, ENTER_NAME, at, pointer, read
from cudasync.softgpu.jit.kernel_abi.job_record import Field


def _begin(*, of_warp: bool = True) -> str:
    warp = "  %wide.warp = zext i32 %warp to i64\n" if of_warp else ""
    return f"""entry:
  %state = call ptr {ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z)
  %is.off = icmp eq ptr %state, null
  ; A branch that no lane of the warp takes may be gone through all the same.
  %is.nobody = icmp eq i32 %mask, 0
  %is.none = or i1 %is.off, %is.nobody
  br i1 %is.none, label %leave, label %begin
begin:
{warp}  %wide.mask = zext i32 %mask to i64
{pointer("%state", "head", State.HEAD)}
{read("%head", "time", Head.TIME)}
  %later = add i64 %time, 1"""


_HEADER: Final = "ptr %job, i32 %x, i32 %y, i32 %z, i32 %warp, i32 %mask"


def _ask(what: Ask, *values: str) -> str:
    given = [*values, *["0"] * (6 - len(values))]
    rest = ", ".join(f"i64 {each}" for each in given)
    who = "i64 %wide.warp, i64 %wide.mask"
    return f"call i64 {CALL_NAME}(ptr %state, i64 {what.value}, {who}, {rest})"


_IS_FOR_ALL: Final = f"""
{read("%job", "ntid.x", Field.NTID_X)}
{read("%job", "ntid.y", Field.NTID_Y)}
{read("%job", "ntid.z", Field.NTID_Z)}
  %area = mul i64 %ntid.x, %ntid.y
  %threads = mul i64 %area, %ntid.z
  %is.every = icmp uge i64 %count, %threads
  %is.uncounted = icmp eq i64 %count, 0
  %is.for.all = or i1 %is.every, %is.uncounted
  %counted = select i1 %is.for.all, i64 0, i64 %count"""

_PARITY: Final = f"""  %barrier.row = mul i64 %number, {MOST_WARPS}
  %barrier.place = add i64 %barrier.row, %wide.warp
{read("%state", "parity", State.PARITY, "%barrier.place")}
  %here = and i64 %parity, %wide.mask
  %is.odd = icmp ne i64 %here, 0"""

ARRIVE_NAME: Final = "@cudasync.race.arrive"
# Lanes arrive at a barrier of the block. Lanes that arrive twice before others go on use the other
# parity. So the times of two turns of a barrier are kept, and no warp is further ahead.
ARRIVE = f"""
define void {ARRIVE_NAME}({_HEADER}, i64 %number, i64 %count, i64 %waits) nounwind {{
{_begin()}
  store i64 %later, ptr %time.at{_IS_FOR_ALL}
  br i1 %is.for.all, label %all, label %some
all:
{_PARITY}
  %odd = zext i1 %is.odd to i64
  %turns = shl i64 %number, 1
  %turn = or i64 %turns, %odd
{at("%state", "came", State.CAME, "%turn")}
  store i64 %time, ptr %came.at
  %flipped = xor i64 %parity, %wide.mask
  store i64 %flipped, ptr %parity.at
{read("%state", "knows", State.KNOWS)}
  %is.asked = icmp ne i64 %knows, 0
  br i1 %is.asked, label %some, label %leave
some:
  %answer = {_ask(Ask.ARRIVE, "%number", "%counted", "%waits", "%time")}
  br label %leave
leave:
  ret void
}}
"""

LEAVE_NAME: Final = "@cudasync.race.leave"
# The barrier has opened for these lanes.
LEAVE = f"""
define void {LEAVE_NAME}({_HEADER}, i64 %number, i64 %count) nounwind {{
{_begin()}
{_IS_FOR_ALL}
  br i1 %is.for.all, label %all, label %some
all:
{_PARITY}
  ; It was flipped when they came.
  %is.even = xor i1 %is.odd, true
  %odd = zext i1 %is.even to i64
  %turns = shl i64 %number, 1
  %turn = or i64 %turns, %odd
{read("%state", "came", State.CAME, "%turn")}
{read("%state", "floor", State.FLOOR, "%wide.warp")}
  %is.more = icmp ugt i64 %came, %floor
  %raised = select i1 %is.more, i64 %came, i64 %floor
  store i64 %raised, ptr %floor.at
{read("%state", "knows", State.KNOWS)}
  %is.asked = icmp ne i64 %knows, 0
  br i1 %is.asked, label %some, label %leave
some:
  %answer = {_ask(Ask.LEAVE, "%number", "%counted")}
  br label %leave
leave:
  ret void
}}
"""

WARP_NAME: Final = "@cudasync.race.warp"
# bar.warp.sync, with the lanes' masks as words. If all existing lanes take part, it asks no check.
WARP = f"""
define void {WARP_NAME}({_HEADER}, ptr %members, i32 %spacing) nounwind {{
{_begin()}
  store i64 %later, ptr %time.at
{read("%job", "warps", Field.WARPS)}
{read("%job", "last.mask", Field.LAST_MASK)}
  %next.warp = add i64 %wide.warp, 1
  %is.last = icmp eq i64 %next.warp, %warps
  %there = select i1 %is.last, i64 %last.mask, i64 -1
  %short.there = trunc i64 %there to i32
  %absent = xor i32 %short.there, -1
  br label %next
next:
  %left = phi i32 [%mask, %begin], [%rest, %whole]
  %is.over = icmp eq i32 %left, 0
  br i1 %is.over, label %together, label %lane
lane:
  %index = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lowered = sub i32 %left, 1
  %rest = and i32 %left, %lowered
  %place = mul i32 %index, %spacing
  %members.at = getelementptr i64, ptr %members, i32 %place
  %wide.member = load i64, ptr %members.at
  %member = trunc i64 %wide.member to i32
  %covered = or i32 %member, %absent
  %is.whole = icmp eq i32 %covered, -1
  br i1 %is.whole, label %whole, label %some
whole:
  br label %next
together:
{at("%state", "together", State.TOGETHER, "%wide.warp")}
  store i64 %time, ptr %together.at
  br label %leave
some:
  %members.address = ptrtoint ptr %members to i64
  %wide.spacing = zext i32 %spacing to i64
  %answer = {_ask(Ask.WARP, "%members.address", "%wide.spacing", "%time")}
  br label %leave
leave:
  ret void
}}
"""

FENCE_NAME: Final = "@cudasync.race.fence"
FENCE = f"""
define void {FENCE_NAME}({_HEADER}, i64 %wide) nounwind {{
{_begin()}
  store i64 %later, ptr %time.at
{at("%state", "fenced", State.FENCED, "%wide.warp")}
  store i64 %time, ptr %fenced.at
  %is.wide = icmp ne i64 %wide, 0
  br i1 %is.wide, label %further, label %look
further:
{at("%state", "fenced.wide", State.FENCED_WIDE, "%wide.warp")}
  store i64 %time, ptr %fenced.wide.at
{read("%state", "floor", State.FLOOR, "%wide.warp")}
{at("%state", "floor.fenced", State.FLOOR_FENCED, "%wide.warp")}
  store i64 %floor, ptr %floor.fenced.at
  br label %look
look:
{read("%head", "objects", Head.OBJECTS)}
  %is.asked = icmp ne i64 %objects, 0
  br i1 %is.asked, label %ask, label %leave
ask:
  %answer = {_ask(Ask.FENCE, "%wide")}
  br label %leave
leave:
  ret void
}}
"""

STRONG_NAME: Final = "@cudasync.race.strong"
# A strong access, before it is done: it may acquire other threads' writes, or release its own.
STRONG = f"""
define void {STRONG_NAME}({_HEADER}, i64 %strength, ptr %addresses, i32 %spacing) nounwind {{
{_begin()}
{read("%state", "fenced", State.FENCED, "%wide.warp")}
{read("%head", "objects", Head.OBJECTS)}
  %writes = and i64 %strength, {Strength.WRITES.value}
  %is.write = icmp ne i64 %writes, 0
  %releases = and i64 %strength, {Strength.RELEASES.value}
  %is.release = icmp ne i64 %releases, 0
  %was.fenced = icmp ne i64 %fenced, 0
  %publishes = and i1 %is.write, %was.fenced
  %are.objects = icmp ne i64 %objects, 0
  %either = or i1 %publishes, %is.release
  %is.asked = or i1 %either, %are.objects
  br i1 %is.asked, label %ask, label %leave
ask:
  store i64 %later, ptr %time.at
  %addresses.word = ptrtoint ptr %addresses to i64
  %wide.spacing = zext i32 %spacing to i64
  %answer = {_ask(Ask.STRONG, "%strength", "%addresses.word", "%wide.spacing", "%time")}
  br label %leave
leave:
  ret void
}}
"""

COPIES_NAME: Final = "@cudasync.race.copies"
# cp.async: `groups` is -1 at the end of a group, else the number of groups that a wait leaves open.
COPIES = f"""
define void {COPIES_NAME}({_HEADER}, i64 %groups) nounwind {{
{_begin()}
  store i64 %later, ptr %time.at
  %answer = {_ask(Ask.COPIES, "%groups", "%time")}
  br label %leave
leave:
  ret void
}}
"""

FUNCTIONS = {
    ARRIVE_NAME: ARRIVE,
    LEAVE_NAME: LEAVE,
    WARP_NAME: WARP,
    FENCE_NAME: FENCE,
    STRONG_NAME: STRONG,
    COPIES_NAME: COPIES,
}
