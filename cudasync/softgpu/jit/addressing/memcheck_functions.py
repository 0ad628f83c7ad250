"""Cellar, jit. The memcheck functions that every kernel may call, as LLVM IR text.

`@cudasync.report` fills the fault report. `@cudasync.look` looks up each lane of an access. On a
fault it fills the report and returns false. Otherwise it caches the range of the last lane, with
the room for the instruction's reach, and returns true. `@cudasync.check` does that for all accesses
of a row (`access_descriptors`), with addresses in memory. `@cudasync.check.line` does it for lanes
with a constant stride.
"""

from __future__ import annotations

from cudasync.softgpu.jit.kernel_abi import instruction_budget
from cudasync.softgpu.jit.kernel_abi.access_descriptors import Cache, Word, read_window, read_word
from cudasync.softgpu.jit.kernel_abi.job_record import FaultCode, Field


def _word(name: str, field: Field) -> str:
    """Load a word of the job as %name."""
    return f"""  %{name}.at = getelementptr i64, ptr %job, i64 {field.value}
  %{name} = load i64, ptr %{name}.at"""


def _store(field: Field, text: str) -> str:
    name = field.name.lower()
    return f"""  %{name}.at = getelementptr i64, ptr %job, i64 {field.value}
  store i64 {text}, ptr %{name}.at"""


def _window(name: str, start: Field, length: Field, following: str) -> str:
    """Test %address against [start, start + length); jump to `inside` on a hit."""
    return f"""{name}:
{_word(name + ".start", start)}
{_word(name + ".length", length)}
  %{name}.first = sub i64 %address, %{name}.start
  %{name}.behind = add i64 %{name}.first, %size
  %{name}.a = icmp ult i64 %{name}.first, %{name}.length
  %{name}.b = icmp ule i64 %{name}.behind, %{name}.length
  %{name}.ok = and i1 %{name}.a, %{name}.b
  br i1 %{name}.ok, label %inside, label %{following}"""


REPORT = f"""
define void @cudasync.report(ptr %job, i64 %kind, i64 %position, i32 %lanes, i64 %address) {{
  %wide.lanes = zext i32 %lanes to i64
{_store(Field.FAULT_KIND, "%kind")}
{_store(Field.FAULT_POSITION, "%position")}
{_store(Field.FAULT_LANES, "%wide.lanes")}
{_store(Field.FAULT_ADDRESS, "%address")}
  ret void
}}
"""

# The last range that starts at or before the address is the only candidate: ranges are sorted and
# disjoint.
LOOK = f"""
define i1 @cudasync.look(ptr %job, ptr %row, ptr %addresses, i32 %mask, ptr %access) {{
entry:
{read_window()}
  %displacement = load i64, ptr %access
  %size.at = getelementptr i64, ptr %access, i64 1
  %size = load i64, ptr %size.at
  %position.at = getelementptr i64, ptr %access, i64 2
  %position = load i64, ptr %position.at
  %last.start = alloca i64
  %last.length = alloca i64
  store i64 %window.start, ptr %last.start
  store i64 %window.length, ptr %last.length
  %low.bits = sub i64 %size, 1
{_word("table.address", Field.ALLOCATIONS)}
{_word("table.count", Field.ALLOCATION_COUNT)}
  %table = inttoptr i64 %table.address to ptr
  br label %next
next:
  %left = phi i32 [%mask, %entry], [%rest, %advance]
  %bad = phi i32 [0, %entry], [%bad.now, %advance]
  %kind = phi i64 [0, %entry], [%kind.now, %advance]
  %where.bad = phi i64 [0, %entry], [%where.now, %advance]
  %is.over = icmp eq i32 %left, 0
  br i1 %is.over, label %finish, label %lane
lane:
  %lane.index = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lowered = sub i32 %left, 1
  %rest = and i32 %left, %lowered
  %lane.at = getelementptr i64, ptr %addresses, i32 %lane.index
  %leading = load i64, ptr %lane.at
  %address = add i64 %leading, %displacement
  %off = and i64 %address, %low.bits
  %is.aligned = icmp eq i64 %off, 0
  br i1 %is.aligned, label %recent, label %misaligned
recent:
  %recent.start = load i64, ptr %last.start
  %recent.length = load i64, ptr %last.length
  %recent.first = sub i64 %address, %recent.start
  %recent.behind = add i64 %recent.first, %size
  %recent.a = icmp ult i64 %recent.first, %recent.length
  %recent.b = icmp ule i64 %recent.behind, %recent.length
  %recent.ok = and i1 %recent.a, %recent.b
  br i1 %recent.ok, label %good, label %otherwise
otherwise:
  br i1 %is.window, label %outside, label %search
search:
  %low = phi i64 [0, %otherwise], [%low.next, %step]
  %high = phi i64 [%table.count, %otherwise], [%high.next, %step]
  %is.found = icmp uge i64 %low, %high
  br i1 %is.found, label %candidate, label %step
step:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %pair = shl i64 %middle, 1
  %start.at = getelementptr i64, ptr %table, i64 %pair
  %start = load i64, ptr %start.at
  %is.after = icmp ugt i64 %start, %address
  %middle.next = add i64 %middle, 1
  %low.next = select i1 %is.after, i64 %low, i64 %middle.next
  %high.next = select i1 %is.after, i64 %middle, i64 %high
  br label %search
candidate:
  %is.before.all = icmp eq i64 %low, 0
  br i1 %is.before.all, label %no.range, label %range
range:
  %before = sub i64 %low, 1
  %range.pair = shl i64 %before, 1
  %range.end.pair = add i64 %range.pair, 1
  %range.start.at = getelementptr i64, ptr %table, i64 %range.pair
  %range.end.at = getelementptr i64, ptr %table, i64 %range.end.pair
  %range.start = load i64, ptr %range.start.at
  %range.end = load i64, ptr %range.end.at
  %range.length = sub i64 %range.end, %range.start
  %range.first = sub i64 %address, %range.start
  %range.behind = add i64 %range.first, %size
  %range.a = icmp ult i64 %range.first, %range.length
  %range.b = icmp ule i64 %range.behind, %range.length
  %range.ok = and i1 %range.a, %range.b
  br i1 %range.ok, label %remember, label %no.range
remember:
  store i64 %range.start, ptr %last.start
  store i64 %range.length, ptr %last.length
  br label %good
no.range:
  %is.generic = icmp eq i64 %where, 1
  br i1 %is.generic, label %shared, label %outside
{_window("shared", Field.SHARED, Field.SHARED_BYTES, "local")}
{_window("local", Field.LOCAL, Field.LOCAL_BYTES, "parameters")}
{_window("parameters", Field.PARAMETERS, Field.PARAMETER_BYTES, "outside")}
inside:
  %in.start = phi i64 [%shared.start, %shared], [%local.start, %local],
    [%parameters.start, %parameters]
  %in.length = phi i64 [%shared.length, %shared], [%local.length, %local],
    [%parameters.length, %parameters]
  store i64 %in.start, ptr %last.start
  store i64 %in.length, ptr %last.length
  br label %good
good:
  br label %advance
misaligned:
  br label %wrong
outside:
  br label %wrong
wrong:
  %kind.found = phi i64 [{FaultCode.MISALIGNED.value}, %misaligned],
    [{FaultCode.ILLEGAL_ADDRESS.value}, %outside]
  %lane.bit = shl i32 1, %lane.index
  %bad.more = or i32 %bad, %lane.bit
  %is.first = icmp eq i32 %bad, 0
  %kind.first = select i1 %is.first, i64 %kind.found, i64 %kind
  %where.first = select i1 %is.first, i64 %address, i64 %where.bad
  br label %advance
advance:
  %bad.now = phi i32 [%bad, %good], [%bad.more, %wrong]
  %kind.now = phi i64 [%kind, %good], [%kind.first, %wrong]
  %where.now = phi i64 [%where.bad, %good], [%where.first, %wrong]
  br label %next
finish:
  %is.right = icmp eq i32 %bad, 0
  br i1 %is.right, label %right, label %report
right:
  %new.start = load i64, ptr %last.start
  %new.length = load i64, ptr %last.length
  store i64 %new.start, ptr %cache
  store i64 %new.length, ptr %cache.length
{read_word(Word.REACH, "reach")}
{read_word(Word.SHIFT, "shift")}
  %unit = shl i64 1, %shift
  %unit.less = sub i64 %unit, 1
  %negated = sub i64 0, %new.start
  %skipped = and i64 %negated, %unit.less
  %base = add i64 %new.start, %skipped
  %taken = add i64 %skipped, %reach
  %spare = sub i64 %new.length, %taken
  %places = lshr i64 %spare, %shift
  %some.room = add i64 %places, 1
  %has.room = icmp uge i64 %new.length, %taken
  %is.asked = icmp ne i64 %reach, 0
  %is.kept = and i1 %has.room, %is.asked
  %room = select i1 %is.kept, i64 %some.room, i64 0
  %cache.base = getelementptr i64, ptr %cache, i64 {Cache.BASE.value}
  %cache.room = getelementptr i64, ptr %cache, i64 {Cache.ROOM.value}
  store i64 %base, ptr %cache.base
  store i64 %room, ptr %cache.room
  ret i1 true
report:
  call void @cudasync.report(ptr %job, i64 %kind, i64 %position, i32 %bad, i64 %where.bad)
{_store(Field.FAULT_WHERE, "%where")}
  ret i1 false
}}
"""

# Looks up each access of a row, in order.
CHECK = f"""
define i1 @cudasync.check(ptr %job, ptr %row, ptr %addresses, i32 %mask) {{
entry:
{read_word(Word.COUNT, "count")}
  %first = getelementptr i64, ptr %row, i64 {len(Word)}
  br label %next
next:
  %index = phi i64 [0, %entry], [%following, %look]
  %is.over = icmp uge i64 %index, %count
  br i1 %is.over, label %done, label %look
look:
  %offset = mul i64 %index, 3
  %access = getelementptr i64, ptr %first, i64 %offset
  %following = add i64 %index, 1
  %is.right = call i1 @cudasync.look(ptr %job, ptr %row, ptr %addresses, i32 %mask, ptr %access)
  br i1 %is.right, label %next, label %wrong
wrong:
  ret i1 false
done:
  ret i1 true
}}
"""

CHECK_LINE = """
define i1 @cudasync.check.line(ptr %job, ptr %row, i64 %base, i32 %index, i32 %mask) {
  %addresses = alloca [32 x i64], align 64
  call void @cudasync.line(ptr %row, i64 %base, i32 %index, ptr %addresses)
  %is.right = call i1 @cudasync.check(ptr %job, ptr %row, ptr %addresses, i32 %mask)
  ret i1 %is.right
}
"""

# The addresses of 32 lanes with a constant stride; the index may wrap.
LINE = f"""
define void @cudasync.line(ptr %row, i64 %base, i32 %index, ptr %addresses) {{
entry:
{read_word(Word.SCALE, "scale")}
{read_word(Word.STRIDE, "wide.stride")}
{read_word(Word.IS_SIGNED, "sign")}
  %stride = trunc i64 %wide.stride to i32
  %is.signed = icmp ne i64 %sign, 0
  br label %lane
lane:
  %number = phi i64 [0, %entry], [%following, %lane]
  %here = phi i32 [%index, %entry], [%onward, %lane]
  %signed = sext i32 %here to i64
  %unsigned = zext i32 %here to i64
  %wide = select i1 %is.signed, i64 %signed, i64 %unsigned
  %offset = mul i64 %wide, %scale
  %address = add i64 %base, %offset
  %place = getelementptr i64, ptr %addresses, i64 %number
  store i64 %address, ptr %place
  %onward = add i32 %here, %stride
  %following = add i64 %number, 1
  %more = icmp ult i64 %following, 32
  br i1 %more, label %lane, label %done
done:
  ret void
}}
"""

FUNCTIONS = {
    "@cudasync.report": REPORT,
    "@cudasync.look": LOOK,
    "@cudasync.check": CHECK,
    "@cudasync.line": LINE,
    "@cudasync.check.line": CHECK_LINE,
    **instruction_budget.FUNCTIONS,
}
