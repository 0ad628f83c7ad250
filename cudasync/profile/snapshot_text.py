"""The tower. A look as lines, compared with the previous look, for `top` and `cs.live`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.profile.snapshot import EngineLook, Group, Look

# The most waiting ops that are shown.
_MOST_WAITING = 8


def rates(seen: Look, earlier: Look | None) -> dict[int, tuple[float, float]]:
    """By engine, finished host ops and device ops per second since `earlier`.

    An engine that did not exist then is left out.
    """
    if earlier is None or seen["at_s"] <= earlier["at_s"]:
        return {}
    passed_s = seen["at_s"] - earlier["at_s"]
    old = {each["number"]: each for each in earlier["engines"]}
    return {
        each["number"]: (
            (each["over_host"] - old[each["number"]]["over_host"]) / passed_s,
            (each["over_device"] - old[each["number"]]["over_device"]) / passed_s,
        )
        for each in seen["engines"]
        if each["number"] in old
    }


def with_rates(seen: Look, earlier: Look | None) -> dict[str, Any]:
    """The look for programs: each engine also has `host_ops_per_s` and `device_ops_per_s`.

    They are None without an earlier look.
    """
    found = rates(seen, earlier)
    engines = []
    for each in seen["engines"]:
        host, device = found.get(each["number"], (None, None))
        engines.append({**each, "host_ops_per_s": host, "device_ops_per_s": device})
    return {**seen, "engines": engines}


def lines(seen: Look, earlier: Look | None = None) -> list[str]:
    """Engines with their rates, workers, streams and waiting ops, then memory, then threads."""
    made = [f"process {seen['pid']}  {seen['program']}"]
    if seen["unplanned"] > 0:
        made.append(f"about {seen['unplanned']:,} pushes not planned yet")
    found = rates(seen, earlier)
    for engine in seen["engines"]:
        made += ["", *_engine(engine, found.get(engine["number"]))]
    if not seen["engines"]:
        made += ["", "no engine is open"]
    made += _memory(seen)
    if seen["threads"] is None:
        made += ["", "a free-threaded Python cannot show its threads"]
    elif seen["threads"]:
        made += ["", "threads that wait"]
        width = max(len(each["thread"]) for each in seen["threads"])
        for each in seen["threads"]:
            site = each["at"] and f", at {each['at']}"
            made.append(f"  {each['thread']:<{width}}  for {each['waits_for']}{site}")
    # Names are the program's, and must not control the terminal.
    return ["".join(c if c.isprintable() else "?" for c in line) for line in made]


def _engine(engine: EngineLook, rate: tuple[float, float] | None) -> Iterable[str]:
    over = engine["over_host"] + engine["over_device"] + engine["failed"]
    failed = f" ({engine['failed']:,} failed)" if engine["failed"] else ""
    flying = f"{engine['in_flight']:,} ops in flight"
    yield f"{engine['mode']} engine: {flying}, {over:,} over{failed}{_rate(rate)}"
    places = [*engine["running"], *engine["streams"]]
    width = max((len(each["where"]) for each in places), default=0)
    for each in places:
        yield f"  {each['where']:<{width}}  {_busy(each)}"
    waiting = engine["waiting"]
    if waiting["count"]:
        yield f"  {waiting['count']:,} wait"
        for op in waiting["ops"][:_MOST_WAITING]:
            yield f"    {op}"
        if waiting["count"] > _MOST_WAITING:
            yield f"    and {waiting['count'] - _MOST_WAITING:,} more"


def _rate(rate: tuple[float, float] | None) -> str:
    if rate is None:
        return ""
    host, device = rate
    return f"; {host:,.0f} host and {device:,.0f} device ops/s"


def _busy(group: Group) -> str:
    if not group["count"]:
        return "idle"
    more = f"{group['count']:,} ops, first " if group["count"] > 1 else ""
    return f"{more}{group['ops'][0]}"


def _memory(seen: Look) -> Iterable[str]:
    for each in seen["memory"]:
        cached, allocated = each["cached_bytes"], each["allocated_bytes"]
        yield (
            f"memory of device {each['device']}: {size(allocated - cached)} used by arrays,"
            f" {size(cached)} cached, {size(each['peak_bytes'])} at most"
        )


def size(size_bytes: int) -> str:
    """Three digits and a unit of 1024."""
    value = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def cropped(shown: list[str], columns: int, rows: int) -> list[str]:
    """The lines that fit the terminal; the last row counts the lines that do not."""
    kept = shown if len(shown) <= rows else shown[: max(rows - 1, 0)]
    left = len(shown) - len(kept)
    more = [f"... {left} lines more"] if left else []
    return [line[:columns] for line in kept + more]
