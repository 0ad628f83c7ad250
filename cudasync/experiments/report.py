"""A measurement as text: the expectation, the time of each way, a chart of the ops."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from cudasync.demo.chart import chart
from cudasync.experiments.measuring import TOLERANCE

if TYPE_CHECKING:
    from cudasync.experiments.measuring import Measurement

_WIDTH = 100


def as_text(found: Measurement) -> list[str]:
    """The lines of the report, none longer than a hundred characters."""
    said = {
        "expected": [found.expectation],
        "measured": _verdict(found),
        "results": [_results(found), *([found.remark] if found.remark else [])],
    }
    heads = (head for title, lines in said.items() for head in (title, *[""] * (len(lines) - 1)))
    return [
        f"{found.name}: {found.title} ({found.size} x {found.size})",
        *(f"  {head:<11}{line}" for head, line in zip(heads, chain(*said.values()), strict=True)),
        *_table(found),
        "",
        *_chart(found),
    ]


def _verdict(found: Measurement) -> list[str]:
    met = {True: "as expected", False: "NOT as expected", None: "no verdict"}[found.is_met]
    if found.is_met and found.ratio < 1:
        met = "but nothing was gained: small work, or a busy machine"
    if found.expected_ratio is not None:
        return [
            f"{found.ratio:.2f} times as fast by the device's clock, at best "
            f"{found.expected_ratio:.2f}: {met}"
        ]
    gain = f"{found.ratio:.2f} times as fast by the wall clock"
    if found.shared is None:
        return [f"{met}: the devices have a virtual clock, and the CPU has the wall clock", gain]
    return [
        f"{found.shared:.0%} of the work that could overlap did (at least "
        f"{found.least_shared:.0%}): {met}",
        gain,
    ]


def _results(found: Measurement) -> str:
    equal = "equal to" if found.is_equal else "DIFFERENT from"
    close = "" if found.largest_error <= TOLERANCE else "NOT "
    return (
        f"{equal} the serial engine's, bit for bit; {close}NumPy's within {TOLERANCE:.0e} "
        f"(off by {found.largest_error:.0e})"
    )


def _table(found: Measurement) -> list[str]:
    width = max(len(name) for name in found.times)
    title = f"median of {found.rounds}" if found.rounds > 1 else "one round"
    return [
        f"  {title:<{width}}  {'device clock':>14}  {'wall clock':>14}",
        *(
            f"  {name:<{width}}  {times.device_ms:>11.3f} ms  {times.wall_ms:>11.1f} ms"
            for name, times in found.times.items()
        ),
    ]


def _chart(found: Measurement) -> list[str]:
    entries = found.traces.get(found.fast, [])
    if not entries:
        return ["  no picture: the serial engine keeps no trace"]
    clock = f"{found.trace_clock}, {found.fast}"
    return [f"  {line}" for line in chart(entries, _WIDTH - 2, clock=clock)]
