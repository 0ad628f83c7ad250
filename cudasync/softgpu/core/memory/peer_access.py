"""Cellar. Peers: pairs of devices that can use each other's memory; many machines lack some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import INVALID_DEVICE, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Device

ALL: Final = "all"
NONE: Final = "none"


class Peers:
    """Pairs of devices, given as "all", "none", or pairs of ordinals: "0-1,2-3"."""

    def __init__(self, said: str) -> None:
        self._has_all = said == ALL
        self._pairs = frozenset() if said in (ALL, NONE) else frozenset(map(_pair, said.split(",")))

    def include(self, one: Device, other: Device) -> bool:
        """True for two different devices that can use each other's memory."""
        if one is other:
            return False
        return self._has_all or frozenset((one.ordinal, other.ordinal)) in self._pairs

    def check(self, one: Device, other: Device) -> None:
        """DriverFailure INVALID_DEVICE unless the two are one device, or peers."""
        if one is not other and not self.include(one, other):
            raise DriverFailure(
                INVALID_DEVICE,
                f"devices {one.ordinal} and {other.ordinal} have no access to each other's memory",
            )


def _pair(text: str) -> frozenset[int]:
    numbers = text.split("-")
    if len(numbers) != 2 or not all(each.strip().isdecimal() for each in numbers):
        raise ValueError(f'peers are "{ALL}", "{NONE}" or pairs like "0-1,2-3", not {text!r}')
    return frozenset(map(int, numbers))
