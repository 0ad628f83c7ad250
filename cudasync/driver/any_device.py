"""Floor 1. `ANY`: a device that is not chosen yet.

Every `device=` takes it. In recorded work, a pass over the graph chooses the device. Elsewhere, and
for work that the pass does not move, `ANY` is the current device.
"""

from __future__ import annotations

from cudasync.driver.streams.current_streams import current_device


class AnyDevice:
    """The class of `ANY`, its only instance."""

    __slots__ = ()

    def __index__(self) -> int:
        """The ordinal of the current device, so that every `device=` takes it."""
        return current_device().ordinal

    def __repr__(self) -> str:
        return "ANY"

    def __reduce__(self) -> str:
        return "ANY"


ANY = AnyDevice()
"""Any device. In `with cs.graph()` a pass over the graph chooses a device for each operation, and
adds the necessary copies between devices; elsewhere it is the current device."""
