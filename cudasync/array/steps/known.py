"""Floor 4, steps. Steps that were worked out before, as long as the life of the context lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cudasync.driver import Device

Made = TypeVar("Made")
_MOST = 512


class Known(Generic[Made]):
    """What was made for a key on a device. Any thread may ask; what two make at once is alike."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[Any, tuple[object, Made]] = {}

    def get(self, key: Hashable, device: Device, make: Callable[[], Made]) -> Made:
        """What is known for `key` in this life of the device's context, or else is made now."""
        full = (key, device.ordinal)
        token = device.context.token
        found = self._made.get(full)
        if found is None or found[0] is not token:
            made = make()
            if len(self._made) >= _MOST:
                self._made.clear()
            # The token of before: what a reset came in between of is not used again.
            found = self._made[full] = (token, made)
        return found[1]
