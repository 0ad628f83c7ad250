"""The tower. A profile as one page of HTML: tracks, search, and why each op waited.

The page is one file with style, script and data, and its content policy forbids it to load
anything. Names enter the page as JSON, and are shown as text only, never as HTML.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudasync.profile import wait_reasons
from cudasync.profile.perfetto import lanes, said
from cudasync.profile.record import ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.profile.record import Record


def page(records: Sequence[Record], table: str) -> str:
    """The text of the page, which shows `table` unchanged."""
    parts = {
        "/* STYLE */": _file("page.css"),
        "/* SCRIPT */": "\n".join(map(_file, ("tracks.js", "details.js", "page.js"))),
        "/* DATA */": as_json({**content(records), "table": table}),
    }
    text = _file("page.html")
    for mark, part in parts.items():
        before, found, after = text.partition(mark)
        assert found, f"page.html has no {mark}"
        text = before + part + after
    return text


def content(records: Sequence[Record]) -> dict[str, Any]:
    """The page's data: `tracks`, `ops` in push order, and `bars`, which are drawn.

    An op refers to other ops by their index in `ops`: `next` is the op that it waited for, and
    `before` has its dependencies. A bar is `[track, start, duration, op, name]`, with the name of a
    node, or an empty name for the op itself. Times are in microseconds, by the track's clock.
    """
    blocked = wait_reasons.blockers(records)
    index = {record: at for at, record in enumerate(records)}
    tracks: dict[tuple[str, str], int] = {}
    bars: list[list[Any]] = []
    timed = [each for each in records if each.has_times]
    for each in sorted(timed, key=lambda record: (record.clock, record.place or "")):
        where = each.clock, each.place or ""
        track = tracks.setdefault(where, len(tracks))
        bars.append([track, each.start_us, each.duration_us, index[each], ""])
    # Nodes are below all ops of their clock; nodes that overlap in one launch have further tracks.
    for each in timed:
        for node, lane in zip(each.node_times, lanes(each.node_times), strict=True):
            where = each.clock, f"{each.place}, nodes" + (f" {lane + 1}" if lane else "")
            track = tracks.setdefault(where, len(tracks))
            bars.append([track, node.start_us, node.duration_us, index[each], node.name])
    return {
        "tracks": [{"clock": clock, "name": name} for clock, name in tracks],
        "ops": [_op(each, index, blocked) for each in records],
        "bars": bars,
    }


def _op(record: Record, index: dict[Record, int], blocked: wait_reasons.Blockers) -> dict[str, Any]:
    reason = wait_reasons.reason_of(record, blocked)
    is_annotation = record.kind == ANNOTATION
    waited_for = reason.dependency.on if reason.dependency is not None else reason.blocker
    return {
        "number": record.number,
        "name": record.name,
        "kind": record.kind,
        "site": record.push_site,
        "place": record.place,
        "clock": record.clock,
        "queued": record.queued_us,
        "start": record.start_us,
        "duration": record.duration_us if record.has_times else None,
        "bytes": record.size_bytes,
        "copy": record.is_copy,
        "nodes": list(record.nodes),
        "reads": [said(each) for each in record.reads],
        "writes": [said(each) for each in record.writes],
        "why": "an annotated part of the program" if is_annotation else str(reason),
        "next": None if waited_for is None or is_annotation else index.get(waited_for),
        "before": [
            [index[each.on], each.hazard, each.over] for each in record.before if each.on in index
        ],
    }


def as_json(made: dict[str, Any]) -> str:
    """JSON that never ends a script element, for any names."""
    text = json.dumps(made, separators=(",", ":"), allow_nan=False)
    # JSON has these characters only in strings.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
