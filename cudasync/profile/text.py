"""The tower. A profile as text, for `print(profile)`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cudasync.profile import analysis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.profile.record import Record

_MOST_ROWS = 30
_MOST_STEPS = 20
_MOST_NAMES = 8


def text(
    records: Sequence[Record], notes: Sequence[str] = (), annotations: Sequence[Record] = ()
) -> str:
    """Tables of ops, nodes and annotations, then overlap, critical path, idle time and copies."""
    timed = sum(each.has_times for each in records)
    lines = [f"{len(records)} ops, {len(records) - timed} without times", *notes]
    rows = analysis.rows(records)
    if rows:
        width = max(4, *(len(row.name) for row in rows[:_MOST_ROWS]))
        lines += ["", f"{'op':<{width}}  {'on':<8} {'count':>7} {'total':>9} {'mean':>9} {'max':>9} share"]  # noqa: E501  # fmt: skip
        for row in rows[:_MOST_ROWS]:
            where = "host" if row.device is None else f"device {row.device}"
            lines.append(
                f"{row.name:<{width}}  {where:<8} {row.count:>7} {duration(row.total_us):>9}"
                f" {duration(row.mean_us):>9} {duration(row.max_us):>9} {row.share:>5.0%}"
            )
        if len(rows) > _MOST_ROWS:
            lines.append(f"and {len(rows) - _MOST_ROWS} more")
    lines += _nodes(records)
    lines += _annotations(annotations)
    for axis in analysis.axes(records):
        lines += [
            "",
            f"{axis.clock}: {duration(axis.elapsed_us)} elapsed, {duration(axis.busy_us)} busy,"
            f" overlap {axis.overlap:.2f};"
            f" with unlimited streams and workers about {duration(axis.unbounded_us)}"
            + _with_fresh_memory(axis),
            f"  critical path, {duration(axis.critical_us)}:",
        ]
        shown = axis.critical[-_MOST_STEPS:]
        if len(shown) < len(axis.critical):
            lines.append(f"    {len(axis.critical) - len(shown)} ops before these")
        lines += [
            f"    {duration(each.duration_us):>9}  {each.name}  {each.push_site}" for each in shown
        ]
    places = analysis.places(records)
    if places:
        lines += ["", "idle:"]
    for place in places:
        longest = sorted(place.reasons.items(), key=lambda item: -item[1])[:3]
        said = ", ".join(f"{why} {duration(time_us)}" for why, time_us in longest)
        lines.append(
            f"  {place.name} ({place.clock}): {place.ops} ops, busy {duration(place.busy_us)},"
            f" idle {duration(place.idle_us)}" + (f": {said}" if said else "")
        )
    for copies in analysis.moved(records):
        share = copies.hidden_us / copies.total_us if copies.total_us else 0.0
        lines.append(
            f"{copies.kind}: {copies.size_bytes} bytes in {duration(copies.total_us)},"
            f" {copies.gb_per_s:.3g} GB/s, {share:.0%} hidden behind compute"
        )
    return "\n".join(lines)


def _with_fresh_memory(axis: analysis.Axis) -> str:
    """What the reuse of memory costs; nothing if it makes no op wait."""
    if axis.reuse_us <= 0 and axis.unbounded_fresh_us >= axis.unbounded_us:
        return ""
    return (
        f", and with memory of its own for each result {duration(axis.unbounded_fresh_us)}\n"
        f"  waits for memory that was used again: {duration(axis.reuse_us)}"
    )


def _nodes(records: Sequence[Record]) -> list[str]:
    """Nodes of graphs: a table of nodes with times, and the names of the others."""
    lines: list[str] = []
    rows = analysis.node_rows(records)
    if rows:
        width = max(len(row.name) for row in rows[:_MOST_ROWS])
        lines += ["", "nodes of graphs:"]
    for row in rows[:_MOST_ROWS]:
        where = "host" if row.device is None else f"device {row.device}"
        lines.append(
            f"{row.name:<{width}}  {where:<8} {row.count:>7} {duration(row.total_us):>9}"
            f" {duration(row.mean_us):>9} {duration(row.max_us):>9} {row.share:>5.0%}"
            f"  {row.push_site}"
        )
    if len(rows) > _MOST_ROWS:
        lines.append(f"and {len(rows) - _MOST_ROWS} more")
    untimed = Counter(name for each in records if not each.node_times for name in each.nodes)
    if untimed:
        said = [f"{name} ({count})" for name, count in untimed.most_common(_MOST_NAMES)]
        if len(untimed) > _MOST_NAMES:
            said.append(f"{len(untimed) - _MOST_NAMES} more")
        lines += ["", f"without times of their own (cs.profile(nodes=True)): {', '.join(said)}"]
    return lines


def _annotations(annotations: Sequence[Record]) -> list[str]:
    rows = analysis.rows(annotations)
    if not rows:
        return []
    width = max(len(row.name) for row in rows[:_MOST_ROWS])
    lines = ["", "annotations:"]
    for row in rows[:_MOST_ROWS]:
        lines.append(
            f"{row.name:<{width}}  {row.count:>7} {duration(row.total_us):>9}"
            f" {duration(row.mean_us):>9} {duration(row.max_us):>9}"
        )
    more = len(rows) - _MOST_ROWS
    return [*lines, f"and {more} more"] if more > 0 else lines


def duration(time_us: float) -> str:
    """Three digits and a unit."""
    for limit, divisor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms")):
        if abs(time_us) < limit:
            return f"{time_us / divisor:.3g} {unit}"
    return f"{time_us / 1e6:.3g} s"
