"""Floor 1. One text on several devices: a module for each device, made at the first need.

Each is a separate `Module`, with its own kernels and variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cudasync.driver.device import Device
    from cudasync.driver.kernels.module import Module


class Family:
    """The modules of one text on several devices: `home` is the first."""

    __slots__ = ("_home", "_loaded")

    def __init__(self, home: Module) -> None:
        self._home = home
        # By ordinal. Any thread writes: a surplus module is unloaded with its last kernel.
        self._loaded: dict[int, Module] = {}

    def on(self, device: Device) -> Any:
        """The module on `device`, of the class of `home`; loaded now if it is not, or if a reset of
        the device ended it."""
        home = self._home
        if device is home.device:
            return home
        home.get()
        found = self._loaded.get(device.ordinal)
        if found is None or found.is_closed:
            found = home.loaded_on(device)
            found.family = self
            self._loaded[device.ordinal] = found
        return found

    def close(self) -> None:
        """Close all but `home`, which closes itself."""
        while self._loaded:
            self._loaded.popitem()[1].close()
