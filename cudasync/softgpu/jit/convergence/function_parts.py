"""Cellar, jit. How each function that counts arriving lanes begins, and asks Python."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.convergence_records import STATE_WORDS, Ask, State
from cudasync.softgpu.jit.checks.race_functions import at, find_block, pointer, read
from cudasync.softgpu.jit.kernel_abi.job_record import Field

_ARGUMENTS: Final = 6
_GIVEN: Final = ", ".join(f"i64 %v{n}" for n in range(_ARGUMENTS))
ASK_NAME: Final = "@cudasync.converge.ask"
ASK: Final = f"""
define void {ASK_NAME}(ptr %state, i64 %what, {_GIVEN}) noinline nounwind {{
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


def ask(what: Ask, *values: str) -> str:
    given = [*values, *["0"] * (_ARGUMENTS - len(values))]
    rest = ", ".join(f"i64 {each}" for each in given)
    return f"call void {ASK_NAME}(ptr %state, i64 {what.value}, {rest})"


ENTER_NAME: Final = "@cudasync.converge.enter"
# The state of the slot, set to the current block; null if convergence is not checked.
ENTER: Final = f"""
define ptr {ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z) nounwind {{
entry:
{find_block(Field.CONVERGENCE, State.BLOCK, "other")}
other:
{read("%state", "awaited", State.AWAITED)}
  %is.awaited = icmp ne i64 %awaited, 0
  br i1 %is.awaited, label %tell, label %fresh
tell:
  {ask(Ask.FRESH)}
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

HEADER: Final = "ptr %job, i32 %x, i32 %y, i32 %z, i32 %warp, i32 %mask"
BEGIN: Final = f"""entry:
  %state = call ptr {ENTER_NAME}(ptr %job, i32 %x, i32 %y, i32 %z)
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
THERE: Final = f"""{read("%job", "warps", Field.WARPS)}
{read("%job", "last.mask", Field.LAST_MASK)}
  %next.warp = add i64 %wide.warp, 1
  %is.last = icmp eq i64 %next.warp, %warps
  %wide.there = select i1 %is.last, i64 %last.mask, i64 -1
  %there = trunc i64 %wide.there to i32
{read("%state", "gone", State.GONE, "%wide.warp")}
  %is.gone = trunc i64 %gone to i32
  %not.gone = xor i32 %is.gone, -1
  %living = and i32 %there, %not.gone"""
