"""The tower. The clocks of devices, tied to the wall clock at both ends of a profile.

A tie is an event on a stream of its own, between two looks at the wall clock: that it happened
between them is certain, and half their distance is its error. Between the first and the last tie
of a device its clock is taken to run evenly, so a drift is corrected. A clock that stands still
while the host sleeps is virtual: one for all devices, and not laid on the wall clock.
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
    """The same moment by the wall clock and by a device's, in microseconds, and how surely."""

    wall_us: float
    device_us: float
    error_us: float


class DeviceClock:
    """The clock of one device, from its origin, which is the first tie."""

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
        # What to add on the virtual clock, so that it is one for all devices.
        self.shift_us = 0.0

    def tie(self) -> Tie:
        """Tie the two clocks now; the surest of a few attempts counts."""
        best = min((self._attempt() for _ in range(_ATTEMPTS)), key=lambda tie: tie.error_us)
        self.ties.append(best)
        return best

    def axis_us(self, device_us: float) -> float:
        """A time of the device on the axis that it is shown on."""
        if self.is_virtual:
            return device_us + self.shift_us
        first, last = self.ties[0], self.ties[-1]
        passed_us = last.device_us - first.device_us
        rate = (last.wall_us - first.wall_us) / passed_us if passed_us > 0 else 1.0
        return first.wall_us + (device_us - first.device_us) * rate

    @property
    def error_us(self) -> float:
        """How far a time may be off on the wall clock, if the device's clock runs evenly."""
        return 0.0 if self.is_virtual else max(self.ties[0].error_us, self.ties[-1].error_us)

    @property
    def drift(self) -> float:
        """By how much the device's clock is slow, as a share of the time passed."""
        first, last = self.ties[0], self.ties[-1]
        passed_us = last.device_us - first.device_us
        if self.is_virtual or passed_us <= 0:
            return 0.0
        return (last.wall_us - first.wall_us) / passed_us - 1.0

    def close(self) -> None:
        """The last tie, which a lost device does not give."""
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
