"""Overlap of places, from intervals on one clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.experiments.clocks import HOST, clock_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import cudasync as cs

    Interval = tuple[float, float]


def place_of(entry: cs.TraceEntry) -> str:
    """The place of an op: "CPU", or "GPU 0" for any stream."""
    clock = clock_of(entry)
    return "CPU" if clock == HOST else clock.replace("device", "GPU")


def busy(entries: Iterable[cs.TraceEntry]) -> dict[str, list[Interval]]:
    """The busy times of each place: disjoint intervals in order, in microseconds."""
    found: dict[str, list[Interval]] = {}
    for entry in sorted(entries, key=lambda entry: entry.start_us):
        intervals = found.setdefault(place_of(entry), [])
        if intervals and entry.start_us <= intervals[-1][1]:
            begin, end = intervals.pop()
            intervals.append((begin, max(end, entry.end_us)))
        else:
            intervals.append((entry.start_us, entry.end_us))
    return found


def shared(entries: Sequence[cs.TraceEntry]) -> float:
    """The share of possible overlap that was reached.

    It is the time in which two or more places were busy, divided by the busy time of the second
    busiest place. It is 0 if places take turns, and for a single place.
    """
    places = busy(entries)
    totals = sorted(sum(end - begin for begin, end in each) for each in places.values())
    if len(totals) < 2 or not totals[-2]:
        return 0.0
    return min(_beside(places.values()) / totals[-2], 1.0)


def _beside(places: Iterable[Sequence[Interval]]) -> float:
    """The time in which two or more places were busy."""
    # Ends before beginnings at the same moment: touching is not overlapping.
    changes = sorted(
        change for each in places for begin, end in each for change in ((begin, 1), (end, -1))
    )
    total, running, since = 0.0, 0, 0.0
    for moment, change in changes:
        if running >= 2:
            total += moment - since
        running, since = running + change, moment
    return total
