"""Cellar, jit. Functions that count arriving lanes (`interface/convergence_records.py`)."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.convergence_records import (
    BARRIERS,
    MOST_WARPS,
    STATE_WORDS,
    Ask,
    State,
)
from cudasync.softgpu.jit.checks.race_functions import at, find_block, pointer, read
from cudasync.softgpu.jit.kernel_abi.job_record import Field

_ARGUMENTS: Final = 6
_GIVEN: Final = ", ".join(f"i64 %v{n}" for n in range(_ARGUMENTS))
_ASK_NAME: Final = "@cudasync.converge.ask"
_ASK: Final = f"""
define void {_ASK_NAME}(ptr %state, i64 %what, {_GIVEN}) noinline nounwind {{
{at("%state", "asked", State.ASKED)}
  store i64 %what, ptr %asked.at
{
    chr(10).join(
        f"{at('%state', f'a{n}', State.ARGUMENTS + n)}{chr(10)}  store i64 %v{n}, ptr %a{n}.at"
        for n in range(_ARGUMENTS)
    )
}
{pointer("%state", "callback", State.CALLBACK)}
  %address = ptrtoint ptr %state to i64
  %answer = call i64 %callback(i64 %address)
  ret void
}}
"""


def _ask(what: Ask, *values: str) -> str:
    given = [*values, *["0"] * (_ARGUMENTS - len(values))]
    rest = ", ".join(f"i64 {each}" for each in given)
    return f"call void {_ASK_NAME}(ptr %state, i64 {what.value}, {rest})"


_ENTER_NAME: Final = "@cudasync.converge.enter"
# The state of the slot, set to the current block; null if convergence is not checked.
_ENTER: Final = f"""
define ptr {_ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z) nounwind {{
entry:
{find_block(Field.CONVERGENCE, State.BLOCK, "other")}
other:
{read("%state", "awaited", State.AWAITED)}
  %is.awaited = icmp ne i64 %awaited, 0
  br i1 %is.awaited, label %tell, label %fresh
tell:
  {_ask(Ask.FRESH)}
  br label %fresh
fresh:
  store i64 %mark, ptr %known.at
{at("%state", "own", State.ENDED)}
  call void @llvm.memset.p0.i64(ptr %own.at, i8 0, i64 {8 * (STATE_WORDS - State.ENDED)}, i1 false)
  br label %done
done:
  ret ptr %state
}}
"""

_HEADER: Final = "ptr %job, i32 %x, i32 %y, i32 %z, i32 %warp, i32 %mask"
_BEGIN: Final = f"""entry:
  %state = call ptr {_ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z)
  %is.off = icmp eq ptr %state, null
  ; A branch that no lane of the warp takes may be gone through all the same.
  %is.nobody = icmp eq i32 %mask, 0
  %is.none = or i1 %is.off, %is.nobody
  br i1 %is.none, label %leave, label %begin
begin:
  %wide.warp = zext i32 %warp to i64
  %wide.mask = zext i32 %mask to i64
{read("%state", "waiting", State.WAITING, "%wide.warp")}
  %is.waiting = icmp ne i64 %waiting, 0"""
_THERE: Final = f"""{read("%job", "warps", Field.WARPS)}
{read("%job", "last.mask", Field.LAST_MASK)}
  %next.warp = add i64 %wide.warp, 1
  %is.last = icmp eq i64 %next.warp, %warps
  %wide.there = select i1 %is.last, i64 %last.mask, i64 -1
  %there = trunc i64 %wide.there to i32
{read("%state", "gone", State.GONE, "%wide.warp")}
  %is.gone = trunc i64 %gone to i32
  %not.gone = xor i32 %is.gone, -1
  %living = and i32 %there, %not.gone"""

MEET_NAME: Final = "@cudasync.converge.meet"
# Lanes meet. All is well if the lanes that each lane names are here, and name the same lanes.
_MEET: Final = f"""
define void {MEET_NAME}({_HEADER}, ptr %members, i32 %spacing, i64 %line, i64 %what) nounwind {{
{_BEGIN}
  br i1 %is.waiting, label %ask, label %look
look:
{_THERE}
  %absent = xor i32 %mask, -1
  %are.one = icmp eq i32 %spacing, 0
  br label %next
next:
  %left = phi i32 [%mask, %look], [%rest, %well]
  %is.over = icmp eq i32 %left, 0
  br i1 %is.over, label %leave, label %lane
lane:
  %index = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %place = mul i32 %index, %spacing
  %members.at = getelementptr i64, ptr %members, i32 %place
  %member.word = load i64, ptr %members.at
  %member = trunc i64 %member.word to i32
  br i1 %are.one, label %group, label %several
several:
  %all = load <32 x i64>, ptr %members, align 8
  %one = insertelement <32 x i64> poison, i64 %member.word, i32 0
  %each = shufflevector <32 x i64> %one, <32 x i64> poison, <32 x i32> zeroinitializer
  %are.same = icmp eq <32 x i64> %all, %each
  %alike = bitcast <32 x i1> %are.same to i32
  br label %group
group:
  %same = phi i32 [-1, %lane], [%alike, %several]
  %own = and i32 %same, %mask
  %others = xor i32 %own, -1
  ; Who names others than those that are here with the same mask, and who is not named itself.
  %named = and i32 %member, %living
  %missing = and i32 %named, %others
  %not.named = xor i32 %member, -1
  %strangers = and i32 %own, %not.named
  %wrong = or i32 %missing, %strangers
  %rest = and i32 %left, %others
  %is.well = icmp eq i32 %wrong, 0
  br i1 %is.well, label %well, label %ask
well:
  br label %next
ask:
  %members.address = ptrtoint ptr %members to i64
  %wide.spacing = zext i32 %spacing to i64
  {
    _ask(
        Ask.MEETING,
        "%wide.warp",
        "%wide.mask",
        "%members.address",
        "%wide.spacing",
        "%line",
        "%what",
    )
}
  br label %leave
leave:
  ret void
}}
"""

_OPEN_NAME: Final = "@cudasync.converge.open"
# If all living threads wait at a barrier, it opens: test whether they are the whole block.
_OPEN: Final = f"""
define void {_OPEN_NAME}(ptr %state, i64 %warp, i64 %number) nounwind {{
entry:
{read("%state", "come", State.COME, "%number")}
{read("%state", "line", State.LINE, "%number")}
{read("%state", "ended", State.ENDED)}
{read("%state", "threads", State.THREADS)}
  %all = add i64 %come, %ended
  %is.enough = icmp uge i64 %all, %threads
  %is.some = icmp ne i64 %come, 0
  %opens = and i1 %is.enough, %is.some
  br i1 %opens, label %open, label %leave
open:
  store i64 0, ptr %come.at
  store i64 0, ptr %line.at
{at("%state", "stopped", State.STOPPED)}
  call void @llvm.memset.p0.i64(ptr %stopped.at, i8 0, i64 {8 * MOST_WARPS}, i1 false)
  %is.short = icmp ult i64 %come, %threads
  br i1 %is.short, label %short, label %heard
short:
  {_ask(Ask.SHORT, "%warp", "0", "%line", "%come")}
  br label %heard
heard:
{read("%state", "awaited", State.AWAITED)}
  %is.awaited = icmp ne i64 %awaited, 0
  br i1 %is.awaited, label %tell, label %leave
tell:
  {_ask(Ask.OPENED, "%warp")}
  br label %leave
leave:
  ret void
}}
"""

ARRIVE_NAME: Final = "@cudasync.converge.arrive"
# The same function for a barrier that all threads of a block reach; only meetings need it.
STOP_NAME: Final = "@cudasync.converge.stop"
# Lanes arrive at a barrier of the whole block.
_ARRIVE: Final = f"""
define void {ARRIVE_NAME}({_HEADER}, i64 %line, i64 %number) nounwind {{
{_BEGIN}
  %lanes = call i32 @llvm.ctpop.i32(i32 %mask)
  %more = zext i32 %lanes to i64
{read("%state", "come", State.COME, "%number")}
  %come.now = add i64 %come, %more
  store i64 %come.now, ptr %come.at
{read("%state", "stopped", State.STOPPED, "%wide.warp")}
  %stopped.now = or i64 %stopped, %wide.mask
  store i64 %stopped.now, ptr %stopped.at
  br i1 %is.waiting, label %tell, label %look
tell:
  {_ask(Ask.BARRIER, "%wide.warp", "%wide.mask", "%line", "%number")}
  br label %look
look:
{read("%state", "first", State.LINE, "%number")}
  %is.first = icmp eq i64 %first, 0
  br i1 %is.first, label %note, label %compare
note:
  store i64 %line, ptr %first.at
  br label %open
compare:
  %is.same = icmp eq i64 %first, %line
  br i1 %is.same, label %open, label %differs
differs:
  {_ask(Ask.MISMATCH, "%wide.warp", "%wide.mask", "%first", "%line")}
  br label %open
open:
  call void {_OPEN_NAME}(ptr %state, i64 %wide.warp, i64 %number)
  br label %leave
leave:
  ret void
}}
"""

LEAVE_NAME: Final = "@cudasync.converge.leave"
# Lanes end: barriers may open for the remaining lanes.
_LEAVE: Final = f"""
define void {LEAVE_NAME}({_HEADER}) nounwind {{
{_BEGIN}
{read("%state", "gone", State.GONE, "%wide.warp")}
  ; Who goes straight to the end is told of where the way parts, and again at the end.
  %gone.now = or i64 %gone, %wide.mask
  store i64 %gone.now, ptr %gone.at
  %new = xor i64 %gone.now, %gone
  %short.new = trunc i64 %new to i32
  %lanes = call i32 @llvm.ctpop.i32(i32 %short.new)
  %more = zext i32 %lanes to i64
{read("%state", "ended", State.ENDED)}
  %ended.now = add i64 %ended, %more
  store i64 %ended.now, ptr %ended.at
  %are.old = icmp eq i64 %new, 0
  br i1 %are.old, label %leave, label %hear
hear:
  br i1 %is.waiting, label %tell, label %next
tell:
  {_ask(Ask.END, "%wide.warp", "%wide.mask")}
  br label %next
next:
  %number = phi i64 [0, %hear], [0, %tell], [%following, %next]
  call void {_OPEN_NAME}(ptr %state, i64 %wide.warp, i64 %number)
  %following = add i64 %number, 1
  %is.over = icmp eq i64 %following, {BARRIERS}
  br i1 %is.over, label %leave, label %next
leave:
  ret void
}}
"""

LIVING_NAME: Final = "@cudasync.converge.living"
# The lanes of a warp that have not ended; all lanes if convergence is not checked.
_LIVING: Final = f"""
define i32 {LIVING_NAME}(ptr %job, i32 %x, i32 %y, i32 %z, i32 %warp) nounwind {{
entry:
  %state = call ptr {_ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z)
  %is.off = icmp eq ptr %state, null
  br i1 %is.off, label %off, label %look
look:
  %wide.warp = zext i32 %warp to i64
{_THERE}
  ret i32 %living
off:
  ret i32 -1
}}
"""

UNDEFINED_NAME: Final = "@cudasync.converge.undefined"
# Lanes use undefined values, which they read from missing lanes.
_UNDEFINED: Final = f"""
define void {UNDEFINED_NAME}({_HEADER}, i64 %line, i64 %shuffle) nounwind {{
{_BEGIN}
  {_ask(Ask.UNDEFINED, "%wide.warp", "%wide.mask", "%line", "%shuffle")}
  br label %leave
leave:
  ret void
}}
"""

DECLARATIONS: Final = (
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    "declare i32 @llvm.cttz.i32(i32, i1)",
    "declare i32 @llvm.ctpop.i32(i32)",
)
FUNCTIONS: Final = {
    _ASK_NAME: _ASK,
    _ENTER_NAME: _ENTER,
    MEET_NAME: _MEET,
    _OPEN_NAME: _OPEN,
    ARRIVE_NAME: _ARRIVE,
    STOP_NAME: _ARRIVE.replace(ARRIVE_NAME, STOP_NAME),
    LEAVE_NAME: _LEAVE,
    LIVING_NAME: _LIVING,
    UNDEFINED_NAME: _UNDEFINED,
}
