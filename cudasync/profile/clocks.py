"""The tower. The clocks of devices, tied to the wall clock at both ends of a profile.

A tie is an event on a separate stream, between two reads of the wall clock. The event certainly
happened between the reads, and half their distance is the tie's error. A device's clock is assumed
to run evenly between the first and the last tie, so a drift is corrected. A clock that stands still
while the host sleeps is virtual: one clock for all devices, which is not shown on the wall clock.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cudasync.driver import Event, Stream
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Device

_ATTEMPTS = 3
_PAUSE_S = 2e-3


class Tie(NamedTuple):
    """One moment by the wall clock and by a device's clock, in microseconds, and the error."""

    wall_us: float
    device_us: float
    error_us: float


class DeviceClock:
    """The clock of one device, whose origin is an event at its creation."""

    def __init__(self, device: Device, wall: float) -> None:
        self.device = device
        self._wall = wall
        self._stream = Stream(device)
        self.origin = self._moment()
        self.ties: list[Tie] = []
        first = self.tie()
        time.sleep(_PAUSE_S)
        second = self.tie()
        passed_us = second.wall_us - first.wall_us
        self.is_virtual = second.device_us - first.device_us < passed_us / 2
        # Added to times of the virtual clock, so that all devices share one clock.
        self.shift_us = 0.0

    def tie(self) -> Tie:
        """Tie the two clocks now, by the attempt with the smallest error of a few."""
        best = min((self._attempt() for _ in range(_ATTEMPTS)), key=lambda tie: tie.error_us)
        self.ties.append(best)
        return best

    def axis_us(self, device_us: float) -> float:
        """A time of the device on the axis where it is shown."""
        if self.is_virtual:
            return device_us + self.shift_us
        first, last = self.ties[0], self.ties[-1]
        passed_us = last.device_us - first.device_us
        rate = (last.wall_us - first.wall_us) / passed_us if passed_us > 0 else 1.0
        return first.wall_us + (device_us - first.device_us) * rate

    @property
    def error_us(self) -> float:
        """The error of a time on the wall clock, if the device's clock runs evenly."""
        return 0.0 if self.is_virtual else max(self.ties[0].error_us, self.ties[-1].error_us)

    @property
    def drift(self) -> float:
        """How slow the device's clock is, as a share of the elapsed time."""
        first, last = self.ties[0], self.ties[-1]
        passed_us = last.device_us - first.device_us
        if self.is_virtual or passed_us <= 0:
            return 0.0
        return (last.wall_us - first.wall_us) / passed_us - 1.0

    def close(self) -> None:
        """Make the last tie, except for a lost device, and close the stream."""
        with suppress(CudasyncError):
            self.tie()
        with suppress(CudasyncError):
            self._stream.close()

    def _attempt(self) -> Tie:
        before = time.perf_counter()
        moment = self._moment()
        after = time.perf_counter()
        middle_us = ((before + after) / 2 - self._wall) * 1e6
        return Tie(middle_us, moment.elapsed_ms(self.origin) * 1e3, (after - before) / 2 * 1e6)

    def _moment(self) -> Event:
        event = self._stream.record(Event(self.device, timing=True))
        event.synchronize()
        return event
