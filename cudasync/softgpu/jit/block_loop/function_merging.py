"""Cellar, jit. Merges segments that differ in numbers alone into one function.

If an earlier compiler has unrolled a loop with a barrier, the same segment recurs. Only steps,
offsets, instruction numbers and names differ. LLVM's work grows with the text, so such segments
become one function, which reads its numbers from a row of a table: `%numbers`.

Segments are compared as text: names and labels by the order of their first occurrence, numbers by
position. A number that differs between segments becomes a load at its use. Where LLVM requires a
constant, segments are not merged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A loaded number costs a little each time, so only segments with this many copies are merged.
_LEAST = 3

# The arguments of a segment's function.
PARAMETERS = (
    "%job", "%now", "%then", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%numbers",
)  # fmt: skip

# Names, labels at their definition, rows of accesses, and whole numbers, in this order.
_TOKEN = re.compile(
    r'(%"[^"]*"|%[\w.$-]+|^[\w.$-]+(?=:)|@access\.[\d.-]+|(?<![\w.%@"-])-?\d+(?![\w.]))',
    re.MULTILINE,
)
# The type before a number: directly, within a splat, or at the operation of the line.
_TYPED = re.compile(r"(splat \()?(i32|i64) $")
_OPERATION = re.compile(
    r"  %\S+ = (?:add|sub|mul|and|or|xor|shl|lshr|ashr|icmp \w+)(?: nsw| nuw| exact)* "
    r"(i32|i64) \S+, "
)
_CONSTANTS_ONLY = re.compile(
    r"(?:= (?:alloca|phi|insertelement|extractelement|shufflevector|insertvalue|extractvalue) )"
    r"|switch |@llvm\.prefetch|@llvm\.masked"
)


@dataclass(frozen=True, slots=True)
class Shared:
    """A function that runs several segments: the owner's code, its text, a row for each code."""

    owner: int
    lines: list[str]
    rows: dict[int, tuple[str, ...]]


def share(bodies: Sequence[list[str]]) -> list[Shared]:
    """The function for each segment, by the segment's code."""
    found = [Shared(code, lines, {code: ()}) for code, lines in enumerate(bodies)]
    alike: dict[int, list[int]] = {}
    for code, lines in enumerate(bodies):
        alike.setdefault(len(lines), []).append(code)
    seen: dict[str, _Line] = {}
    for codes in alike.values():
        if len(codes) < _LEAST:
            continue
        shapes: dict[tuple[str, ...], dict[int, list[str]]] = {}
        for code in codes:
            shape, numbers = _shape(bodies[code], seen)
            shapes.setdefault(shape, {})[code] = numbers
        for members in shapes.values():
            together = _join(bodies, members, seen) if len(members) >= _LEAST else None
            if together is not None:
                for code in members:
                    found[code] = together
    return found


def tables(shared: Sequence[Shared]) -> tuple[dict[str, str], int]:
    """Constants for calling segments: a table of functions and one of rows; and the row width."""
    width = max(1, *(len(each.rows[code]) for code, each in enumerate(shared)))
    count = len(shared)
    functions = ", ".join(f"ptr @segment.{each.owner}" for each in shared)
    rows = []
    for code, each in enumerate(shared):
        words = [f"i64 {_word(number)}" for number in each.rows[code]]
        words += ["i64 0"] * (width - len(words))
        rows.append(f"[{width} x i64] [{', '.join(words)}]")
    return {
        "@segments": f"private constant [{count} x ptr] [{functions}]",
        "@numbers": f"private constant [{count} x [{width} x i64]] [{', '.join(rows)}]",
    }, width


@dataclass(frozen=True, slots=True)
class _Line:
    """A line taken apart: the rest of the text, names and labels, and numbers."""

    rest: str
    names: tuple[str, ...]
    numbers: tuple[str, ...]


def _take_apart(line: str) -> _Line:
    pieces = _TOKEN.split(line)
    names: list[str] = []
    numbers: list[str] = []
    for at in range(1, len(pieces), 2):
        token = pieces[at]
        if token[0] == "%":
            names.append(token)
            pieces[at] = "%"
        elif _is_number(token):
            numbers.append(token)
            pieces[at] = "#"
        else:
            names.append("%" + token)
            pieces[at] = "%"
    return _Line("".join(pieces), tuple(names), tuple(numbers))


def _shape(lines: list[str], seen: dict[str, _Line]) -> tuple[tuple[str, ...], list[str]]:
    """The text without names and numbers, with the order of names; and the numbers."""
    rests: list[str] = []
    names: list[str] = []
    numbers: list[str] = []
    for line in lines:
        parts = seen.get(line)
        if parts is None:
            parts = seen[line] = _take_apart(line)
        rests.append(parts.rest)
        names += parts.names
        numbers += parts.numbers
    # The arguments of a function keep their names.
    known = {name: name for name in PARAMETERS}
    order = [known.setdefault(name, str(len(known))) for name in names]
    return ("\n".join(rests), " ".join(order)), numbers


def _join(
    bodies: Sequence[list[str]], members: Mapping[int, list[str]], seen: Mapping[str, _Line]
) -> Shared | None:
    """One function for these; None if a number that differs must be a constant."""
    columns = list(zip(*members.values(), strict=True))
    is_same = [len(set(column)) == 1 for column in columns]
    places: dict[tuple[str, ...], int] = {}
    lines: list[str] = []
    at = 0
    first = next(iter(members))
    for line in bodies[first]:
        begin, at = at, at + len(seen[line].numbers)
        if all(is_same[begin:at]):
            lines.append(line)
            continue
        numbers = [each for each in _TOKEN.finditer(line) if _is_number(each.group())]
        differing = [
            (match, places.setdefault(column, len(places)))
            for match, column in zip(numbers, columns[begin:at], strict=True)
            if len(set(column)) > 1
        ]
        rewritten = _rewrite(line, differing, f"{at}")
        if rewritten is None:
            return None
        lines += rewritten
    assert at == len(columns)
    rows = zip(*places, strict=True) if places else [()] * len(members)
    return Shared(first, lines, dict(zip(members, rows, strict=True)))


def _is_number(token: str) -> bool:
    return token[0] == "@" or token.lstrip("-").isdecimal()


def _rewrite(
    line: str, differing: Sequence[tuple[re.Match[str], int]], suffix: str
) -> list[str] | None:
    """The loads of numbers, and the line with the loaded numbers; None if it needs constants."""
    if _CONSTANTS_ONLY.search(line):
        return None
    before: list[str] = []
    pieces: list[str] = []
    end = 0
    for match, place in differing:
        name = f"%number.{place}.{suffix}.{len(before)}"
        row = f"  {name}.at = getelementptr i64, ptr %numbers, i64 {place}"
        head = line[: match.start()]
        typed = _TYPED.search(head)
        kind = "ptr" if match.group()[0] == "@" else typed.group(2) if typed else _type_of(line)
        if kind is None or (typed is None and kind != "ptr" and not head.endswith(", ")):
            return None
        before += [row, f"  {name} = load {kind}, ptr {name}.at"]
        if typed and typed.group(1):
            wide = re.search(rf"<(\d+) x {kind}>", line)
            if wide is None or line[match.end()] != ")":
                return None
            vector = wide.group()
            before += [
                f"  {name}.one = insertelement {vector} poison, {kind} {name}, i32 0",
                f"  {name}.all = shufflevector {vector} {name}.one, {vector} poison,"
                f" <{wide.group(1)} x i32> zeroinitializer",
            ]
            pieces += [line[end : match.start() - len(typed.group())], f"{name}.all"]
            end = match.end() + 1
        else:
            pieces += [line[end : match.start()], name]
            end = match.end()
    return [*before, "".join(pieces) + line[end:]]


def _type_of(line: str) -> str | None:
    found = _OPERATION.match(line)
    return found.group(1) if found else None


def _word(token: str) -> str:
    return f"ptrtoint (ptr {token} to i64)" if token[0] == "@" else token
