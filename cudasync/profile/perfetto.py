"""The tower. A profile in the trace event format, which Perfetto and chrome://tracing open.

Each clock is a process, each stream and worker a thread of it. Flows show dependencies. Counters
show running ops, ops in flight, and the bytes that arrays allocated from the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.profile.record import ANNOTATION, WALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.profile.record import NodeTime, Record


def trace(records: Sequence[Record]) -> dict[str, Any]:
    """The trace as a JSON object. Times are in microseconds, by the clock of each process."""
    timed = [each for each in records if each.has_times]
    clocks = {clock: index + 1 for index, clock in enumerate(sorted({r.clock for r in timed}))}
    tracks: dict[tuple[str, str], int] = {}
    for each in sorted(timed, key=lambda record: (record.clock, record.place or "")):
        tracks.setdefault((each.clock, each.place or ""), len(tracks) + 1)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": clock}}
        for clock, pid in clocks.items()
    ]
    for (clock, place), tid in tracks.items():
        named = {"name": place}
        events.append(
            {"ph": "M", "name": "thread_name", "pid": clocks[clock], "tid": tid, "args": named}
        )
    # Nodes that overlap in one launch are on tracks of their own.
    beside: dict[tuple[str, str], int] = {}
    flow = 0
    for each in timed:
        where = {"pid": clocks[each.clock], "tid": tracks[each.clock, each.place or ""]}
        events.append(
            {
                "ph": "X",
                "name": each.name,
                "cat": each.kind,
                "ts": each.start_us,
                "dur": each.duration_us,
                **where,
                "args": _arguments(each),
            }
        )
        for node, lane in zip(each.node_times, lanes(each.node_times), strict=True):
            place = each.place or ""
            track = where["tid"]
            if lane:
                key = each.clock, f"{place}, nodes {lane}"
                if key not in beside:
                    beside[key] = len(tracks) + len(beside) + 1
                    named = {"name": key[1]}
                    tid = beside[key]
                    events.append(
                        {"ph": "M", "name": "thread_name", "pid": where["pid"], "tid": tid,
                         "args": named}
                    )  # fmt: skip
                track = beside[key]
            events.append(
                {
                    "ph": "X",
                    "name": node.name,
                    "cat": "node",
                    "ts": node.start_us,
                    "dur": node.duration_us,
                    "pid": where["pid"],
                    "tid": track,
                    "args": {"push site": node.push_site, "launch": each.number},
                }
            )
        for dependency in each.before:
            on = dependency.on
            if not on.has_times or on.clock != each.clock:
                continue
            flow += 1
            said = {"cat": "dependency", "name": dependency.hazard, "id": flow}
            source = {"pid": clocks[on.clock], "tid": tracks[on.clock, on.place or ""]}
            events.append({"ph": "s", "ts": on.start_us, **source, **said})
            events.append({"ph": "f", "bp": "e", "ts": each.start_us, **where, **said})
    for clock, pid in clocks.items():
        events += _counted(timed, clock, pid)
    if WALL not in clocks:
        named = {"name": WALL}
        pid = clocks[WALL] = len(clocks) + 1
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": named})
    events += _in_flight(records, clocks[WALL])
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def lanes(nodes: Sequence[NodeTime]) -> list[int]:
    """Lane numbers for nodes, so that nodes of one lane do not overlap."""
    ends: list[float] = []
    found = dict.fromkeys(range(len(nodes)), 0)
    for at in sorted(found, key=lambda at: nodes[at].start_us):
        free = next((i for i, end in enumerate(ends) if end <= nodes[at].start_us), len(ends))
        ends[free : free + 1] = [nodes[at].end_us]
        found[at] = free
    return list(found.values())


def _arguments(record: Record) -> dict[str, Any]:
    if record.kind == ANNOTATION:
        return {"entered at": record.push_site}
    made: dict[str, Any] = {
        "number": record.number,
        "push site": record.push_site,
        "queued_us": record.queued_us,
        "reads": [said(each) for each in record.reads],
        "writes": [said(each) for each in record.writes],
    }
    if record.size_bytes:
        made["bytes"] = record.size_bytes
        if record.is_copy and record.duration_us > 0:
            made["GB/s"] = record.size_bytes / record.duration_us / 1e3
    if record.nodes:
        made["nodes"] = list(record.nodes)
    return made


def _counted(timed: Sequence[Record], clock: str, pid: int) -> list[dict[str, Any]]:
    """Counters of running ops, and of bytes allocated since the profile began."""
    mine = [each for each in timed if each.clock == clock and each.kind != ANNOTATION]
    events = []
    for name, changes in (
        ("ops running", [(e.start_us, 1) for e in mine] + [(e.end_us, -1) for e in mine]),
        ("bytes allocated", [(e.end_us, _allocated(e)) for e in mine if _allocated(e)]),
    ):
        value = 0
        for at, change in sorted(changes):
            value += change
            events.append(
                {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": at, "args": {name: value}}
            )
    return events


def _in_flight(records: Sequence[Record], pid: int) -> list[dict[str, Any]]:
    """A counter of ops between push and noticed end, on all devices, by the wall clock."""
    seen = [each for each in records if each.found_us is not None and each.kind != ANNOTATION]
    changes = [(each.queued_us, 1) for each in seen] + [(each.found_us, -1) for each in seen]
    value, events = 0, []
    for at, change in sorted(changes):
        value += change
        events.append(
            {"ph": "C", "name": "ops in flight", "pid": pid, "tid": 0, "ts": at,
             "args": {"ops in flight": value}}
        )  # fmt: skip
    return events


def _allocated(record: Record) -> int:
    if record.kind == "allocate":
        return record.size_bytes
    if record.kind == "free":
        return -sum(getattr(r, "end", 0) - getattr(r, "start", 0) for r in record.writes)
    return 0


def said(what: Any) -> str:
    """A variable or a range of bytes in words."""
    start = getattr(what, "start", None)
    if start is None:
        return f"variable {what.name!r}"
    return f"{what.end - what.start} bytes at 0x{start:x}"
