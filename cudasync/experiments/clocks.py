"""The two clocks: the device's, read through events, and the wall clock.

On the software GPU the device's clock is virtual, one clock for all devices. It counts the cost of
commands, and nothing that the host does. Elsewhere it runs like the wall clock, from another
origin. Only then can times of the two clocks be compared.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import cudasync as cs

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST = "host"
_ATTEMPTS = 5
_PAUSE_S = 5e-3


class Stopwatch:
    """Both clocks, from creation to `stop`; no op may be under way at either moment."""

    def __init__(self) -> None:
        self._device = _moment()
        self._wall = time.perf_counter()

    def stop(self) -> tuple[float, float]:
        """Milliseconds passed, by the clock of device 0 and by the wall clock."""
        wall_ms = (time.perf_counter() - self._wall) * 1e3
        return _moment().elapsed_ms(self._device), wall_ms


def _moment() -> cs.Event:
    """Now, by the clock of device 0: an event on an empty stream."""
    stream = cs.Stream(cs.Device(0))
    event = stream.record(cs.Event(cs.Device(0), timing=True))
    event.synchronize()
    stream.close()
    return event


def device_clock_is_wall_clock() -> bool:
    """True if time passes on device 0 while the host sleeps: on the virtual clock it does not."""
    stopwatch = Stopwatch()
    time.sleep(_PAUSE_S)
    device_ms, wall_ms = stopwatch.stop()
    return device_ms > wall_ms / 2


class Alignment:
    """Offsets that bring the times of a trace to one clock.

    This is the wall clock, or the devices' virtual clock, without the host's times. An empty op
    counts as ended when the host notices its end. So a device's times can only be late, and the
    best of a few attempts counts. On the virtual clock no time passes meanwhile.
    """

    def __init__(self, engine: cs.Engine, *, is_on_wall: bool) -> None:
        self._is_on_wall = is_on_wall
        self._offsets_us = {f"device {number}": math.inf for number in range(cs.device_count())}
        if is_on_wall:
            self._offsets_us[HOST] = math.inf
        for attempt in range(_ATTEMPTS):
            self._attempt(engine, f"alignment {attempt}")

    def _attempt(self, engine: cs.Engine, name: str) -> None:
        found_us = {}
        for clock in self._offsets_us:
            if clock == HOST:
                op = engine.push(lambda: None, name=name)
            else:
                op = engine.push(lambda stream: None, name=name, device=int(clock.split()[1]))
            op.wait()
            found_us[clock] = time.perf_counter() * 1e6 if self._is_on_wall else 0.0
        for entry in engine.trace():
            if entry.name == name:
                clock = clock_of(entry)
                offset_us = found_us[clock] - entry.end_us
                self._offsets_us[clock] = min(self._offsets_us[clock], offset_us)

    def aligned(self, entries: Sequence[cs.TraceEntry]) -> list[cs.TraceEntry]:
        """The entries of the common clock, shifted so that the first one begins at 0."""
        moved = [
            _later(entry, self._offsets_us[clock_of(entry)])
            for entry in entries
            if clock_of(entry) in self._offsets_us
        ]
        begin_us = min((entry.start_us for entry in moved), default=0.0)
        return [_later(entry, -begin_us) for entry in moved]


def clock_of(entry: cs.TraceEntry) -> str:
    """The clock that timed an op: `HOST`, or a device as "device 0"."""
    found = re.match(r"device \d+", entry.timeline)
    return found.group() if found else HOST


def _later(entry: cs.TraceEntry, by_us: float) -> cs.TraceEntry:
    return replace(entry, start_us=entry.start_us + by_us, end_us=entry.end_us + by_us)
