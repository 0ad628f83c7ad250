"""Floor 1. `ANY`: a device that nobody has chosen yet.

It stands wherever a `device=` does. Where work is recorded, a pass over the graph chooses; anywhere
else, and for whatever such a pass does not move, it is the current device.
"""

from __future__ import annotations

from cudasync.driver.streams.current_streams import current_device


class AnyDevice:
    """What `ANY` is; there is one."""

    __slots__ = ()

    def __index__(self) -> int:
        """The ordinal of the current device, so that it is a device for all who ask for one."""
        return current_device().ordinal

    def __repr__(self) -> str:
        return "ANY"

    def __reduce__(self) -> str:
        return "ANY"


ANY = AnyDevice()
"""Any device: in `with cs.graph()` the one that a pass over the graph chooses for each operation,
with all copies between devices that this takes; elsewhere the current device."""
