"""Cellar, jit. Functions that count arriving lanes (`interface/convergence_records.py`)."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.convergence_records import Ask
from cudasync.softgpu.jit.convergence.barriers import (
    ARRIVE,
    ARRIVE_NAME,
    LEAVE,
    LEAVE_NAME,
    LIVING,
    LIVING_NAME,
    OPEN,
    OPEN_NAME,
    STOP_NAME,
)
from cudasync.softgpu.jit.convergence.function_parts import (
    ASK,
    ASK_NAME,
    BEGIN,
    ENTER,
    ENTER_NAME,
    HEADER,
    ask,
)
from cudasync.softgpu.jit.convergence.meetings import MEET, MEET_NAME

UNDEFINED_NAME: Final = "@cudasync.converge.undefined"
# Lanes use undefined values, which they read from missing lanes.
UNDEFINED: Final = f"""
define void {UNDEFINED_NAME}({HEADER}, i64 %line, i64 %shuffle) nounwind {{
{BEGIN}
  {ask(Ask.UNDEFINED, "%wide.warp", "%wide.mask", "%line", "%shuffle")}
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
    ASK_NAME: ASK,
    ENTER_NAME: ENTER,
    MEET_NAME: MEET,
    OPEN_NAME: OPEN,
    ARRIVE_NAME: ARRIVE,
    STOP_NAME: ARRIVE.replace(ARRIVE_NAME, STOP_NAME),
    LEAVE_NAME: LEAVE,
    LIVING_NAME: LIVING,
    UNDEFINED_NAME: UNDEFINED,
}
