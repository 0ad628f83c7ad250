"""Floor 1. The current streams, entered by `with`, and the current device, chosen by `use`.

Entered streams belong to the thread or asyncio task that entered them (a context variable); the
chosen device belongs to the thread, as CUDA's current context does.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, NamedTuple

from cudasync.driver.device import Device, as_device

if TYPE_CHECKING:
    from cudasync.driver.device import DeviceLike
    from cudasync.driver.streams.stream import Stream


class Entered(NamedTuple):
    """A stream entered with `with`, and the streams entered before it; never changed."""

    stream: Stream
    outer: Entered | None


entered: contextvars.ContextVar[Entered | None] = contextvars.ContextVar(
    "cudasync_entered_streams", default=None
)


class _Here(threading.local):
    device: Device | None = None


_here = _Here()


def current_device() -> Device:
    """The device of the innermost `with stream:`, else the last `use`d here, else device 0."""
    innermost = entered.get()
    while innermost is not None:
        device = innermost.stream.fixed_device
        if device is not None:
            return device
        innermost = innermost.outer
    return _here.device or Device(0)


def given_device(device: DeviceLike | None) -> Device:
    """The device of a `device=` argument: the current device for None."""
    return current_device() if device is None else as_device(device)


def choose_device(device: Device) -> None:
    """Make `device` the current device of this thread, outside any `with`."""
    _here.device = device
