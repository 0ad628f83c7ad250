"""A trace as text: a row for each stream or worker, a letter for each name of an op.

Time runs from left to right. A column shows the op that filled most of it, and a dot for an idle
place. Streams have the device's clock and workers the wall clock, each from its first op to its
last, unless the caller names one clock for all times.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.engine.trace import TraceEntry

_IDLE = "."
_SPARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def chart(
    entries: Sequence[TraceEntry], width: int = 100, *, clock: str | None = None
) -> list[str]:
    """The lines of the chart, none longer than `width` characters.

    `clock` names the clock of all entries; without it there are two clocks without a common origin.
    """
    drawn = [entry for entry in entries if entry.kind != "memory"]
    letters = _letters(entry.name for entry in sorted(drawn, key=lambda entry: entry.queued_us))
    if clock is not None:
        return [*_section(clock, drawn, letters, width), *_legend(letters, width)]
    device = [entry for entry in drawn if entry.kind != "host"]
    host = [entry for entry in drawn if entry.kind == "host"]
    return [
        *_section("device clock", device, letters, width),
        *_section("wall clock", host, letters, width),
        *_legend(letters, width),
    ]


def _section(
    title: str, entries: Sequence[TraceEntry], letters: dict[str, str], width: int
) -> list[str]:
    if not entries:
        return []
    begin = min(entry.start_us for entry in entries)
    end = max(entry.end_us for entry in entries)
    rows: dict[str, list[TraceEntry]] = {}
    for entry in entries:
        rows.setdefault(entry.timeline, []).append(entry)
    label_width = max(len(name) for name in rows)
    heads = {
        name: f"  {name:<{label_width}} {len(row):>4} {'op ' if len(row) == 1 else 'ops'}"
        f" {_busy(row, begin, end):>4.0%} "
        for name, row in rows.items()
    }
    columns = max(width - max(len(head) for head in heads.values()), 10)
    step = (end - begin) / columns or 1.0
    title = f"{title}: {_duration(end - begin)} in all, {_duration(step)} per column"
    return [
        title,
        *(heads[n] + _row(rows[n], begin, step, columns, letters) for n in in_order(rows)),
    ]


def _row(
    entries: Sequence[TraceEntry],
    begin: float,
    step: float,
    columns: int,
    letters: dict[str, str],
) -> str:
    filled = [0.0] * columns
    drawn = [_IDLE] * columns
    for entry in entries:
        first = min(int((entry.start_us - begin) / step), columns - 1)
        last = min(int((entry.end_us - begin) / step), columns - 1)
        for column in range(first, last + 1):
            left, right = begin + column * step, begin + (column + 1) * step
            # An op of no length is shown if no other op is.
            share = max(min(entry.end_us, right) - max(entry.start_us, left), step * 1e-9)
            if share > filled[column]:
                filled[column] = share
                drawn[column] = letters[entry.name]
    return "".join(drawn)


def _busy(entries: Sequence[TraceEntry], begin: float, end: float) -> float:
    """The share of the time in which a place was busy; ops of one place do not overlap."""
    return sum(entry.end_us - entry.start_us for entry in entries) / ((end - begin) or 1.0)


def _letters(names: Iterable[str]) -> dict[str, str]:
    """A character for each name: its initial for the first name with it, else a free one."""
    letters: dict[str, str] = {}
    for name in names:
        letters.setdefault(name, "")
    for is_initial in (True, False):
        for name, letter in letters.items():
            wanted = name[:1].upper() if is_initial else name.upper() + _SPARE
            if not letter:
                free = (c for c in wanted if c in _SPARE and c not in letters.values())
                letters[name] = next(free, "")
    return {name: letter or "?" for name, letter in letters.items()}


def _legend(letters: dict[str, str], width: int) -> list[str]:
    lines = [""]
    for name, letter in sorted(letters.items(), key=lambda item: item[1].lower()):
        item = f"  {letter} {name}"
        if len(lines[-1]) + len(item) > width:
            lines.append("")
        lines[-1] += item[:width]
    return [line for line in lines if line]


def _duration(time_us: float) -> str:
    for limit, divisor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms")):
        if time_us < limit:
            return f"{time_us / divisor:.3g} {unit}"
    return f"{time_us / 1e6:.3g} s"


def in_order(names: Iterable[str]) -> list[str]:
    """Names of places in natural order: worker 2 before worker 10, and devices before both."""
    return sorted(names, key=lambda name: [(s, int(n or 0)) for s, n in _PARTS.findall(name)])


_PARTS = re.compile(r"(\D*)(\d*)")
