"""Cellar, jit. Records the accesses of a warp to global memory, all lanes at once.

A row of a recording keeps the line and the address of the first access of each kind. Once a row has
these, only marks change, and those are one vector (`mark_functions`). Before that, and where lanes
reach several rows, lanes are recorded one by one.

The row that a line of PTX met last is remembered, in one of the words before the table.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from cudasync.softgpu.interface.access_recording import HINTS, NOTE_NAME, Row, Touch, first_row
from cudasync.softgpu.jit.checks.mark_functions import Marking, is_any, splat
from cudasync.softgpu.jit.kernel_abi.job_record import Field

SEARCH_NAME: Final = "@cudasync.note.search"
# The index of the first row that ends behind an address.
SEARCH: Final = f"""
define i64 {SEARCH_NAME}(ptr %table, i64 %count, i64 %address) noinline nounwind {{
entry:
  br label %halve
{first_row("entry", "%table", Row.WORDS, Row.END, "found")}
found:
  ret i64 %below
}}
"""

_FIND: Final = f"""\
find:
  %count.at = getelementptr i64, ptr %job, i64 {Field.RECORDING_COUNT.value}
  %count = load i64, ptr %count.at
  %is.off = icmp eq i64 %count, 0
  br i1 %is.off, label %done, label %recall
recall:
  %table.at = getelementptr i64, ptr %job, i64 {Field.RECORDING.value}
  %table.address = load i64, ptr %table.at
  %table = inttoptr i64 %table.address to ptr
  %hint = and i64 %line, {HINTS - 1}
  %hint.behind = sub i64 %hint, {HINTS}
  %hint.at = getelementptr i64, ptr %table, i64 %hint.behind
  %recent = load i64, ptr %hint.at
  %recent.words = mul i64 %recent, {Row.WORDS}
  %recent.row = getelementptr i64, ptr %table, i64 %recent.words
  %recent.start = load i64, ptr %recent.row
  %recent.end.at = getelementptr i64, ptr %recent.row, i64 {Row.END}
  %recent.end = load i64, ptr %recent.end.at
  %recent.offset = sub i64 %probe, %recent.start
  %recent.size = sub i64 %recent.end, %recent.start
  %is.recent = icmp ult i64 %recent.offset, %recent.size
  br i1 %is.recent, label %row, label %search
search:
  %found = call i64 {SEARCH_NAME}(ptr %table, i64 %count, i64 %probe)
  %is.none = icmp uge i64 %found, %count
  br i1 %is.none, label %beyond, label %keep
keep:
  store i64 %found, ptr %hint.at
  br label %row
row:
  %index.of.row = phi i64 [%recent, %recall], [%found, %keep]
  %row.words = mul i64 %index.of.row, {Row.WORDS}
  %row.at = getelementptr i64, ptr %table, i64 %row.words
  %low = load i64, ptr %row.at
  %row.end.at = getelementptr i64, ptr %row.at, i64 {Row.END}
  %row.end = load i64, ptr %row.end.at
  %room = sub i64 %row.end, %low
  %kept.at = getelementptr i64, ptr %row.at, i64 {Row.KEPT}
  %kept.address = load i64, ptr %kept.at
  %marks = inttoptr i64 %kept.address to ptr
  %has.marks = icmp ne i64 %kept.address, 0
"""


@cache
def marking(size: int, bits: int, lanes: int, unit: int = 1) -> Marking:
    """What an access does to marks; `bits` are those of `access_recording.noted`."""
    reads = bool(bits & Touch.READ)
    find, known = _FIND, "%has.marks"
    for touch in (Touch.READ, Touch.WRITTEN):
        if bits & touch:
            find += _first(f"first.{touch.value}", touch)
            find += f"  %known.{touch.value} = and i1 {known}, %first.{touch.value}\n"
            known = f"%known.{touch.value}"
    find += _first("first.early", Touch.READ_FIRST) if reads else ""
    find += "  br label %ready\n"

    def update(prefix: str, type_: str, width: int) -> str:
        of = f"%{prefix}"
        mine = splat(bits, type_, width)
        written = splat(Touch.WRITTEN, type_, width)
        zero = "zeroinitializer" if type_.startswith("<") else "0"
        text = f"  {of}touched = or {type_} {of}m, {mine}\n"
        if not reads:
            changed = is_any(prefix, "is.changed", f"{of}new", f"{of}m", type_)
            return f"""{text}  {of}new = or {type_} {of}touched, {mine}
{changed}
  {of}is.slow = and i1 false, true"""
        # A byte that is read and not written is read first: the two marks are adjacent bits.
        return f"""{text}\
  {of}old = and {type_} {of}m, {written}
  {of}unwritten = xor {type_} {of}old, {written}
  {of}early = shl {type_} {of}unwritten, {splat_count(type_, width)}
  {of}new = or {type_} {of}touched, {of}early
{is_any(prefix, "is.early", f"{of}early", zero, type_)}
{is_any(prefix, "is.changed", f"{of}new", f"{of}m", type_)}
  {of}is.unknown = xor i1 %first.early, true
  {of}is.slow = and i1 {of}is.early, {of}is.unknown"""

    return Marking(
        name=f"@cudasync.note.{bits}.{size}.by{unit}.v{lanes}",
        size=size,
        lanes=lanes,
        parameters="ptr %job",
        find=find,
        update=update,
        count=lambda *_: "",
        lane=f"""\
  call void @{NOTE_NAME}(ptr %table, i64 %count, i64 %address, i64 {size}, i8 {bits}, i64 %line,
      i64 {unit.bit_length() - 1})
  br label %go.on""",
        # An access that is both, so that nothing changes.
        neutral=bits | Touch.WRITTEN,
        known=known,
        is_alone=False,
        unit=unit,
    )


def splat_count(type_: str, width: int) -> str:
    """One, as the number of bits of a shift."""
    return f"splat (i{width} 1)" if type_.startswith("<") else "1"


def _first(name: str, kind: Touch) -> str:
    """Text that defines an i1: the row has its first access of this kind."""
    return f"""\
  %{name}.at = getelementptr i64, ptr %row.at, i64 {Row.first(kind)}
  %{name}.line = load i64, ptr %{name}.at
  %{name} = icmp ne i64 %{name}.line, 0
"""
