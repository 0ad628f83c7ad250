"""Cellar, jit. Functions that count the lanes at barriers, and the lanes that have ended."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.convergence_records import BARRIERS, MOST_WARPS, Ask, State
from cudasync.softgpu.jit.checks.race_functions import at, read
from cudasync.softgpu.jit.convergence.function_parts import BEGIN, ENTER_NAME, HEADER, THERE, ask

OPEN_NAME: Final = "@cudasync.converge.open"
# If all living threads wait at a barrier, it opens: test whether they are the whole block.
OPEN: Final = f"""
define void {OPEN_NAME}(ptr %state, i64 %warp, i64 %number) nounwind {{
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
  {ask(Ask.SHORT, "%warp", "0", "%line", "%come")}
  br label %heard
heard:
{read("%state", "awaited", State.AWAITED)}
  %is.awaited = icmp ne i64 %awaited, 0
  br i1 %is.awaited, label %tell, label %leave
tell:
  {ask(Ask.OPENED, "%warp")}
  br label %leave
leave:
  ret void
}}
"""

ARRIVE_NAME: Final = "@cudasync.converge.arrive"
# The same function for a barrier that all threads of a block reach; only meetings need it.
STOP_NAME: Final = "@cudasync.converge.stop"
# Lanes arrive at a barrier of the whole block.
ARRIVE: Final = f"""
define void {ARRIVE_NAME}({HEADER}, i64 %line, i64 %number) nounwind {{
{BEGIN}
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
  {ask(Ask.BARRIER, "%wide.warp", "%wide.mask", "%line", "%number")}
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
  {ask(Ask.MISMATCH, "%wide.warp", "%wide.mask", "%first", "%line")}
  br label %open
open:
  call void {OPEN_NAME}(ptr %state, i64 %wide.warp, i64 %number)
  br label %leave
leave:
  ret void
}}
"""

LEAVE_NAME: Final = "@cudasync.converge.leave"
# Lanes end: barriers may open for the remaining lanes.
LEAVE: Final = f"""
define void {LEAVE_NAME}({HEADER}) nounwind {{
{BEGIN}
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
  {ask(Ask.END, "%wide.warp", "%wide.mask")}
  br label %next
next:
  %number = phi i64 [0, %hear], [0, %tell], [%following, %next]
  call void {OPEN_NAME}(ptr %state, i64 %wide.warp, i64 %number)
  %following = add i64 %number, 1
  %is.over = icmp eq i64 %following, {BARRIERS}
  br i1 %is.over, label %leave, label %next
leave:
  ret void
}}
"""

LIVING_NAME: Final = "@cudasync.converge.living"
# The lanes of a warp that have not ended; all lanes if convergence is not checked.
LIVING: Final = f"""
define i32 {LIVING_NAME}(ptr %job, i32 %x, i32 %y, i32 %z, i32 %warp) nounwind {{
entry:
  %state = call ptr {ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z)
  %is.off = icmp eq ptr %state, null
  br i1 %is.off, label %off, label %look
look:
  %wide.warp = zext i32 %warp to i64
{THERE}
  ret i32 %living
off:
  ret i32 -1
}}
"""
