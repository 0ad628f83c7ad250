"""Cellar, jit. Finds the row of watched global memory that an access meets."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.access_recording import first_row
from cudasync.softgpu.interface.race_records import ROW_WORDS, Head, State
from cudasync.softgpu.jit.checks.race_functions import pointer, read

ROW_NAME: Final = "@cudasync.race.row"
# The row of global memory that contains these bytes; null if they are not watched.
ROW = f"""
define ptr {ROW_NAME}(ptr %state, i64 %address, i64 %size) nounwind {{
entry:
  %behind = add i64 %address, %size
{pointer("%state", "row", State.ROW)}
  %is.none = icmp eq ptr %row, null
  br i1 %is.none, label %search, label %recent
recent:
  %recent.start = load i64, ptr %row
{read("%row", "recent.end", 1)}
  %is.in.low = icmp uge i64 %address, %recent.start
  %is.in.high = icmp ule i64 %behind, %recent.end
  %is.in = and i1 %is.in.low, %is.in.high
  br i1 %is.in, label %done, label %search
search:
{pointer("%state", "head", State.HEAD)}
{pointer("%head", "rows", Head.ROWS)}
{read("%head", "count", Head.ROW_COUNT)}
  br label %halve
{first_row("search", "%rows", ROW_WORDS, 1, "found")}
found:
  %is.some = icmp ult i64 %below, %count
  br i1 %is.some, label %candidate, label %nothing
candidate:
  %words = mul i64 %below, {ROW_WORDS}
  %candidate.row = getelementptr i64, ptr %rows, i64 %words
  %start = load i64, ptr %candidate.row
{read("%candidate.row", "end", 1)}
  %is.low = icmp uge i64 %address, %start
  %is.high = icmp ule i64 %behind, %end
  %is.here = and i1 %is.low, %is.high
  br i1 %is.here, label %keep, label %nothing
keep:
  %kept = ptrtoint ptr %candidate.row to i64
  store i64 %kept, ptr %row.word.at
  br label %done
nothing:
  br label %done
done:
  %result = phi ptr [%row, %recent], [%candidate.row, %keep], [null, %nothing]
  ret ptr %result
}}
"""


MEETS_NAME: Final = "@cudasync.race.meets"
# Whether some watched row of global memory has any of these bytes.
MEETS = f"""
define i1 {MEETS_NAME}(ptr %state, i64 %address, i64 %size) nounwind {{
entry:
  %behind = add i64 %address, %size
{pointer("%state", "head", State.HEAD)}
{pointer("%head", "rows", Head.ROWS)}
{read("%head", "count", Head.ROW_COUNT)}
  br label %halve
{first_row("entry", "%rows", ROW_WORDS, 1, "found")}
found:
  %is.some = icmp ult i64 %below, %count
  br i1 %is.some, label %look, label %done
look:
  %words = mul i64 %below, {ROW_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %words
  %start = load i64, ptr %row
  %is.begun = icmp ult i64 %start, %behind
  br label %done
done:
  %result = phi i1 [false, %found], [%is.begun, %look]
  ret i1 %result
}}
"""

FUNCTIONS = {ROW_NAME: ROW, MEETS_NAME: MEETS}
