"""Floor 4, steps. A cache of steps, which are valid during one life of the context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cudasync.driver import Device

Made = TypeVar("Made")
_MOST = 512


class Known(Generic[Made]):
    """A cache by key and device. Any thread may ask; two threads make equal values."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[Any, tuple[object, Made]] = {}

    def get(self, key: Hashable, device: Device, make: Callable[[], Made]) -> Made:
        """The value for `key` in the current life of the device's context, made if there is
        none."""
        full = (key, device.ordinal)
        token = device.context.token
        found = self._made.get(full)
        if found is None or found[0] is not token:
            made = make()
            if len(self._made) >= _MOST:
                self._made.clear()
            # The token from before: a value is not used again if a reset came in between.
            found = self._made[full] = (token, made)
        return found[1]
