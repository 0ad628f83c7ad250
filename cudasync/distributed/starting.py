"""Floor 5. `init`: which communicator, on which devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.distributed.local import LocalCommunicator
from cudasync.driver import device_count
from cudasync.xp.places import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.distributed.communicator import Communicator

BACKENDS = ("auto", "local")


def init(backend: str = "auto", *, devices: Sequence[Any] | None = None) -> Communicator:
    """A communicator of all ranks.

    "local": the devices of this process, a rank each, all driven by it; `devices` names them,
    ordinals, Devices or "cpu", and may name one several times. "auto" is "local". Raises ValueError
    for another name and for no devices.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend is one of {', '.join(BACKENDS)}, not {backend!r}")
    given = range(device_count()) if devices is None else devices
    found = [place(each) for each in given]
    if not found:
        raise ValueError("a communicator takes one device and more: devices=[] names none")
    return LocalCommunicator(found)
