"""Cellar, jit. Records the accesses of adjacent lanes of a warp at once.

A row of a recording keeps the line and the address of the first access of each kind. Once a row has
them, only marks must be written, and the marks of a run of memory are written sixty-four at a time.
Before that, and for accesses that are no run, lanes are recorded one by one.
"""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.access_recording import NOTE_NAME, Row, Touch, first_row
from cudasync.softgpu.jit.kernel_abi.job_record import Field

RUN_NAME: Final = "@cudasync.note.run"
_WIDE: Final = "<64 x i8>"


def _first(name: str, kind: Touch) -> str:
    """An i1: the row has the first access of this kind, or this access is of another kind."""
    return f"""  %{name}.at = getelementptr i64, ptr %row.at, i64 {Row.first(kind)}
  %{name}.line = load i64, ptr %{name}.at
  %{name}.is.kept = icmp ne i64 %{name}.line, 0
  %{name}.bit = and i8 %kind, {(kind & ~Touch.READ_FIRST or Touch.READ).value}
  %{name}.is.not = icmp eq i8 %{name}.bit, 0
  %{name} = or i1 %{name}.is.kept, %{name}.is.not"""


# Marks these bytes if they lie in one row that has its first accesses; returns whether they do.
RUN: Final = f"""
define i1 {RUN_NAME}(ptr %table, i64 %count, i64 %address, i64 %size, i8 %kind) nounwind {{
entry:
  %behind = add i64 %address, %size
  %reading = and i8 %kind, {Touch.READ.value}
  %as.first = shl i8 %reading, 2
  br label %halve
{first_row("entry", "%table", Row.WORDS, Row.END, "found")}
found:
  %is.some = icmp ult i64 %below, %count
  br i1 %is.some, label %row, label %slow
row:
  %words = mul i64 %below, {Row.WORDS}
  %row.at = getelementptr i64, ptr %table, i64 %words
  %start = load i64, ptr %row.at
  %end.at = getelementptr i64, ptr %row.at, i64 {Row.END}
  %end = load i64, ptr %end.at
  %kept.at = getelementptr i64, ptr %row.at, i64 {Row.KEPT}
  %kept.address = load i64, ptr %kept.at
  %is.low = icmp uge i64 %address, %start
  %is.high = icmp ule i64 %behind, %end
  %has.marks = icmp ne i64 %kept.address, 0
{_first("read", Touch.READ)}
{_first("write", Touch.WRITTEN)}
{_first("early", Touch.READ_FIRST)}
  %is.in = and i1 %is.low, %is.high
  %is.marked = and i1 %is.in, %has.marks
  %are.two = and i1 %read, %write
  %are.three = and i1 %are.two, %early
  %is.fast = and i1 %is.marked, %are.three
  br i1 %is.fast, label %begin, label %slow
begin:
  %kept = inttoptr i64 %kept.address to ptr
  %offset = sub i64 %address, %start
  %end.offset = add i64 %offset, %size
  %kind.one = insertelement {_WIDE} poison, i8 %kind, i32 0
  %kinds = shufflevector {_WIDE} %kind.one, {_WIDE} poison, <64 x i32> zeroinitializer
  %first.one = insertelement {_WIDE} poison, i8 %as.first, i32 0
  %firsts = shufflevector {_WIDE} %first.one, {_WIDE} poison, <64 x i32> zeroinitializer
  br label %next
next:
  %at = phi i64 [%offset, %begin], [%at.wide, %wide], [%at.next, %byte]
  %left = sub i64 %end.offset, %at
  %is.over = icmp eq i64 %left, 0
  br i1 %is.over, label %done, label %more
more:
  %mark.at = getelementptr i8, ptr %kept, i64 %at
  %is.wide = icmp uge i64 %left, 64
  br i1 %is.wide, label %wide, label %byte
wide:
  %marks = load {_WIDE}, ptr %mark.at, align 1
  %writtens = and {_WIDE} %marks, splat (i8 {Touch.WRITTEN.value})
  %are.old = icmp eq {_WIDE} %writtens, zeroinitializer
  %are.early = select <64 x i1> %are.old, {_WIDE} %firsts, {_WIDE} zeroinitializer
  %now = or {_WIDE} %kinds, %are.early
  %marks.new = or {_WIDE} %marks, %now
  store {_WIDE} %marks.new, ptr %mark.at, align 1
  %at.wide = add i64 %at, 64
  br label %next
byte:
  %mark = load i8, ptr %mark.at
  %written = and i8 %mark, {Touch.WRITTEN.value}
  %is.old = icmp eq i8 %written, 0
  %early.now = select i1 %is.old, i8 %as.first, i8 0
  %all = or i8 %kind, %early.now
  %mark.new = or i8 %mark, %all
  store i8 %mark.new, ptr %mark.at
  %at.next = add i64 %at, 1
  br label %next
done:
  ret i1 true
slow:
  ret i1 false
}}
"""

LANES_NAME: Final = "@cudasync.note.lanes"
# Visits lanes one after another: a lane that begins where the previous one ended extends the run.
LANES: Final = f"""
define void {LANES_NAME}(ptr %job, ptr %addresses, i32 %spacing, i32 %mask, i64 %size,
    i8 %kind, i64 %line) nounwind {{
begin:
  %count.at = getelementptr i64, ptr %job, i64 {Field.RECORDING_COUNT.value}
  %count = load i64, ptr %count.at
  %is.off = icmp eq i64 %count, 0
  br i1 %is.off, label %done, label %entry
entry:
  %table.at = getelementptr i64, ptr %job, i64 {Field.RECORDING.value}
  %table.address = load i64, ptr %table.at
  %table = inttoptr i64 %table.address to ptr
  ; All lanes do one thing to one place: as if one of them did.
  %negated = sub i32 0, %mask
  %one = and i32 %mask, %negated
  %is.one = icmp eq i32 %spacing, 0
  %lanes = select i1 %is.one, i32 %one, i32 %mask
  br label %run
run:
  %begun = phi i32 [%lanes, %entry], [%left, %went]
  %is.over = icmp eq i32 %begun, 0
  br i1 %is.over, label %done, label %first
first:
  %first.index = call i32 @llvm.cttz.i32(i32 %begun, i1 true)
  %first.place = mul i32 %first.index, %spacing
  %first.at = getelementptr i64, ptr %addresses, i32 %first.place
  %start = load i64, ptr %first.at
  %first.less = sub i32 %begun, 1
  %first.rest = and i32 %begun, %first.less
  %first.end = add i64 %start, %size
  br label %next
next:
  %left = phi i32 [%first.rest, %first], [%rest, %joins]
  %end = phi i64 [%first.end, %first], [%end.next, %joins]
  %is.last = icmp eq i32 %left, 0
  br i1 %is.last, label %flush, label %lane
lane:
  %index = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %place = mul i32 %index, %spacing
  %address.at = getelementptr i64, ptr %addresses, i32 %place
  %address = load i64, ptr %address.at
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %end.next = add i64 %end, %size
  %is.beside = icmp eq i64 %address, %end
  br i1 %is.beside, label %joins, label %flush
joins:
  br label %next
flush:
  %length = sub i64 %end, %start
  %is.noted = call i1 {RUN_NAME}(ptr %table, i64 %count, i64 %start, i64 %length, i8 %kind)
  br i1 %is.noted, label %went, label %slow
slow:
  %at = phi i64 [%start, %flush], [%at.next, %slow]
  call void @{NOTE_NAME}(ptr %table, i64 %count, i64 %at, i64 %size, i8 %kind, i64 %line)
  %at.next = add i64 %at, %size
  %are.more = icmp ult i64 %at.next, %end
  br i1 %are.more, label %slow, label %went
went:
  br label %run
done:
  ret void
}}
"""
