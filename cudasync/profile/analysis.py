"""The tower. Analysis of a profile: shares, overlap, idle time, critical path."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from cudasync.profile.record import WALL
from cudasync.profile.wait_reasons import blockers, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.profile.record import Record
    from cudasync.profile.wait_reasons import Blockers


@dataclass(frozen=True, slots=True)
class Row:
    """All ops of one name on one device. Times are in microseconds; `share` is of all busy time of
    the same clock; `device` is None for the host."""

    name: str
    kind: str
    device: int | None
    clock: str
    count: int
    total_us: float
    max_us: float
    share: float
    size_bytes: int

    @property
    def mean_us(self) -> float:
        return self.total_us / self.count


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of a graph, recorded at `push_site`: its count of runs, and their times in
    microseconds. `share` is of all nodes of the same device and clock."""

    name: str
    push_site: str
    device: int | None
    clock: str
    count: int
    total_us: float
    max_us: float
    share: float

    @property
    def mean_us(self) -> float:
        return self.total_us / self.count


@dataclass(frozen=True, slots=True)
class Axis:
    """All ops of one clock, from the first start to the last end.

    `overlap` is busy time over elapsed time. `critical` is the longest chain of ops that depend on
    each other, and `critical_us` its time, a lower bound of the elapsed time. `unbounded_us`
    estimates the time with unlimited streams and workers: each op begins once its dependencies are
    over and, on the wall clock, it is pushed. `unbounded_fresh_us` is the same if each result had
    memory of its own, too. `reuse_us` is the time for which ops waited for memory of dead arrays.
    """

    clock: str
    begin_us: float
    end_us: float
    busy_us: float
    critical: tuple[Record, ...]
    critical_us: float
    unbounded_us: float
    unbounded_fresh_us: float
    reuse_us: float

    @property
    def elapsed_us(self) -> float:
        return self.end_us - self.begin_us

    @property
    def overlap(self) -> float:
        return self.busy_us / self.elapsed_us if self.elapsed_us > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """A stream or worker: its busy and idle time on its clock, and the reasons for idle time.

    The reason is the wait of the next op, and then, on the wall clock, the start of this op once it
    was ready.
    """

    name: str
    clock: str
    ops: int
    busy_us: float
    idle_us: float
    reasons: dict[str, float]


@dataclass(frozen=True, slots=True)
class Moved:
    """Copies: bytes, time, and the time during which a kernel or host op of the same clock ran."""

    kind: str
    size_bytes: int
    total_us: float
    hidden_us: float

    @property
    def gb_per_s(self) -> float:
        return self.size_bytes / self.total_us / 1e3 if self.total_us > 0 else 0.0


# The time to plan the op, to wake a thread and get the interpreter, or to launch on the device.
BEGUN = "waits before starting ready work"


def rows(records: Sequence[Record]) -> list[Row]:
    """The table by op, longest total time first."""
    busy: dict[str, float] = {}
    groups: dict[tuple[str, str, int | None, str], list[Record]] = {}
    for each in records:
        if each.has_times:
            busy[each.clock] = busy.get(each.clock, 0.0) + each.duration_us
            groups.setdefault((each.name, each.kind, each.device, each.clock), []).append(each)
    made = []
    for (name, kind, device, clock), group in groups.items():
        total_us = sum(each.duration_us for each in group)
        longest_us = max(each.duration_us for each in group)
        share = total_us / busy[clock] if busy[clock] > 0 else 0.0
        size = sum(each.size_bytes for each in group)
        made.append(Row(name, kind, device, clock, len(group), total_us, longest_us, share, size))
    return sorted(made, key=lambda row: (row.clock, -row.total_us, row.name))


def node_rows(records: Sequence[Record]) -> list[NodeRow]:
    """The nodes of graphs that have times, longest total time first."""
    groups: dict[tuple[str, str, int | None, str], list[float]] = {}
    busy: dict[tuple[int | None, str], float] = {}
    for each in records:
        for node in each.node_times:
            key = node.name, node.push_site, each.device, each.clock
            groups.setdefault(key, []).append(node.duration_us)
            busy[key[2:]] = busy.get(key[2:], 0.0) + node.duration_us
    made = [
        NodeRow(*key, len(times), sum(times), max(times), sum(times) / (busy[key[2:]] or 1.0))
        for key, times in groups.items()
    ]
    return sorted(made, key=lambda row: (row.clock, -row.total_us, row.name))


def axes(records: Sequence[Record]) -> list[Axis]:
    """One axis for each clock that timed ops."""
    made = []
    for clock in sorted({each.clock for each in records if each.has_times}):
        timed = [each for each in records if each.has_times and each.clock == clock]
        path = _longest(records, clock)
        blocked = blockers(records)
        begin_us = min(start_of(each) for each in timed)
        end_us = max(end_of(each) for each in timed)
        made.append(
            Axis(
                clock,
                begin_us,
                end_us,
                sum(each.duration_us for each in timed),
                path,
                sum(each.duration_us for each in path),
                min(_unbounded_us(records, clock), end_us - begin_us),
                min(_unbounded_us(records, clock, is_fresh=True), end_us - begin_us),
                sum(_reuse_us(each, blocked) for each in timed),
            )
        )
    return made


def places(records: Sequence[Record]) -> list[Place]:
    """Streams and workers, by name; idle time counts from the first op of the clock to the last."""
    bounds = {axis.clock: (axis.begin_us, axis.end_us) for axis in axes(records)}
    made = []
    blocked = blockers(records)
    for (name, clock), ops in _by_place(records).items():
        begin, end = bounds[clock]
        reasons: dict[str, float] = {}
        last = begin
        for op in ops:
            if start_of(op) > last:
                reason = reason_of(op, blocked)
                # Wall clock times mean nothing on another clock.
                over = reason.over_us if clock == WALL else None
                until = start_of(op) if over is None else min(max(over, last), start_of(op))
                for why, idle_us in (
                    (reason.idle, until - last),
                    (BEGUN, start_of(op) - until),
                ):
                    if idle_us > 0:
                        reasons[why] = reasons.get(why, 0.0) + idle_us
            last = max(last, end_of(op))
        if end > last:
            reasons["nothing more to do"] = end - last
        busy_us = length(_merged(ops))
        made.append(Place(name, clock, len(ops), busy_us, end - begin - busy_us, reasons))
    return made


def moved(records: Sequence[Record]) -> list[Moved]:
    """The copies, by kind."""
    made = []
    copies = [each for each in records if each.is_copy and each.has_times]
    for kind in sorted({each.kind for each in copies}):
        group = [each for each in copies if each.kind == kind]
        hidden_us = 0.0
        for clock in {each.clock for each in group}:
            working = _merged(
                each
                for each in records
                if each.has_times and each.clock == clock and each.kind in ("kernel", "host")
            )
            mine = [each for each in group if each.clock == clock]
            ends = [end for _, end in working]
            for each in mine:
                for at in range(bisect_right(ends, start_of(each)), len(working)):
                    start, end = working[at]
                    if start >= end_of(each):
                        break
                    hidden_us += min(end, end_of(each)) - max(start, start_of(each))
        size = sum(each.size_bytes for each in group)
        made.append(Moved(kind, size, sum(each.duration_us for each in group), hidden_us))
    return made


def violations(records: Sequence[Record], error_us: float = 1.0) -> list[str]:
    """Impossible times: an op that starts before the end of a dependency, or ops of one place that
    overlap. Empty for a right engine and a right profile."""
    found = []
    for each in records:
        for dependency in each.before:
            gap_us = each.gap_after_us(dependency.on)
            if gap_us is not None and gap_us < -error_us:
                found.append(
                    f"{each.name} #{each.number} starts {-gap_us:.1f} us before"
                    f" {dependency.on.name} #{dependency.on.number} ends"
                    f" ({dependency.hazard} over {dependency.over})"
                )
    for (name, _), ops in _by_place(records).items():
        for first, second in pairwise(ops):
            if name != "serial" and start_of(second) < end_of(first) - error_us:
                found.append(f"{first.name} and {second.name} overlap on {name}")
    return found


def _longest(records: Sequence[Record], clock: str) -> tuple[Record, ...]:
    """The longest chain of dependencies; only ops of `clock` count."""
    best: dict[Record, float] = {}
    via: dict[Record, Record | None] = {}
    for each in records:
        on = max((d.on for d in each.before), key=lambda r: best.get(r, 0.0), default=None)
        own = each.duration_us if each.clock == clock else 0.0
        best[each] = own + (best.get(on, 0.0) if on is not None else 0.0)
        via[each] = on
    at = max(best, key=lambda record: best[record], default=None)
    path = []
    while at is not None:
        if at.clock == clock and at.has_times:
            path.append(at)
        at = via[at]
    return tuple(reversed(path))


def _reuse_us(record: Record, blocked: Blockers) -> float:
    """The time for which the op waited for memory of a dead array, and for nothing else."""
    reason = reason_of(record, blocked)
    last = reason.dependency
    if last is None or not last.is_reuse or last.on.end_us is None:
        return 0.0
    needed = [each.on for each in record.before if not each.is_reuse]
    others = [e.end_us for e in needed if e.end_us is not None and e.clock == last.on.clock]
    return min(reason.waited_us, last.on.end_us - max(others, default=float("-inf")))


def _unbounded_us(records: Sequence[Record], clock: str, *, is_fresh: bool = False) -> float:
    """The time from first start to last end if no op waited for a place; nor, if memory `is_fresh`,
    for memory of dead arrays.

    Ops of other clocks take no time. The first op could have started at its push, before the first
    start that was seen: then this is longer than the elapsed time, and bounds nothing.
    """
    ends: dict[Record, float] = {}
    starts = []
    for each in records:
        is_timed = each.has_times and each.clock == clock
        before = [d.on for d in each.before if not (is_fresh and d.is_reuse)]
        start = max((ends[on] for on in before if on in ends), default=0.0)
        if clock == WALL:
            start = max(start, each.queued_us)
        ends[each] = start + (each.duration_us if is_timed else 0.0)
        if is_timed:
            starts.append(start)
    timed = [end for each, end in ends.items() if each.has_times and each.clock == clock]
    return max(timed, default=0.0) - min(starts, default=0.0)


def _by_place(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    found: dict[tuple[str, str], list[Record]] = {}
    for each in records:
        if each.has_times and each.place is not None:
            found.setdefault((each.place, each.clock), []).append(each)
    for ops in found.values():
        ops.sort(key=lambda op: (start_of(op), end_of(op)))
    return dict(sorted(found.items()))


def _merged(records: Iterable[Record]) -> list[tuple[float, float]]:
    """The intervals in which at least one of these ops ran."""
    made: list[tuple[float, float]] = []
    for start, end in sorted((start_of(each), end_of(each)) for each in records):
        if made and start <= made[-1][1]:
            made[-1] = made[-1][0], max(end, made[-1][1])
        else:
            made.append((start, end))
    return made


def length(intervals: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)


def start_of(record: Record) -> float:
    assert record.start_us is not None
    return record.start_us


def end_of(record: Record) -> float:
    assert record.end_us is not None
    return record.end_us
