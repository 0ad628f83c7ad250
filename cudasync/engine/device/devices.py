"""Floor 2. The devices that an engine has used: their streams, from first use to the end.

A reset of a device ends its streams, so the key in `Issuer.devices` is the `Life` of the device's
context. All functions here are methods of the issuer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.device import completion
from cudasync.engine.device.streams import DeviceStreams

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine.device.issue import Issuer
    from cudasync.engine.trace import Tally


def streams_of(self: Issuer, device: Device) -> DeviceStreams:
    """The streams of a device, made at the first need and after each reset of the device."""
    token = device.context.token
    found = self.devices.get(token)
    if found is not None:
        return found
    self._on_device()
    fresh = DeviceStreams(
        device,
        token,
        streams=self._streams_per_device,
        timing=self._timing,
        counters=self.ledger.counters,
    )
    made = self.devices.setdefault(token, fresh)
    if made is fresh:
        for each in list(self.devices):
            old = self.devices.get(each)
            if old is not None and old.device is device and old.is_gone:
                self.devices.pop(each, None)
                completion.abandon(self, old)
    return made


def tallies(self: Issuer) -> list[Tally]:
    """The counts of the present streams."""
    return [device.tally() for device in list(self.devices.values())]


def heal(self: Issuer) -> None:
    """Drop the streams of faulted devices, so that new ones are made after a reset."""
    for token in list(self.devices):
        device = self.devices.get(token)
        if device is None:
            continue
        if device.fault is not None:
            self.devices.pop(token, None)
            device.close()
        else:
            device.forget_failures()


def dismiss(self: Issuer) -> None:
    """The engine is gone: let the watchers end; streams end with their last reference."""
    for device in list(self.devices.values()):
        for timeline in device.timelines:
            timeline.dismiss()


def close(self: Issuer) -> None:
    """End the streams; the caller has waited for the ops."""
    while self.devices:
        _, device = self.devices.popitem()
        device.close()
