"""Cellar. Memory locations: the device or host that holds or uses memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_DEVICE,
    INVALID_VALUE,
    DriverFailure,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.context import Device

# CUmemLocationType.
NOWHERE: Final = 0
DEVICE: Final = 1
HOST: Final = 2
HOST_NUMA: Final = 3
HOST_NUMA_CURRENT: Final = 4
_HOSTS: Final = (HOST, HOST_NUMA, HOST_NUMA_CURRENT)

CPU: Final = -1
"""CU_DEVICE_CPU: stands for the host in place of a device's ordinal."""
NO_DEVICE: Final = -2
"""CU_DEVICE_INVALID."""

# CUmemAccess_flags.
ACCESS_NONE: Final = 0
ACCESS_READ: Final = 1
ACCESS_BOTH: Final = 3


class Location(NamedTuple):
    """CUmemLocation."""

    kind: int
    number: int = 0

    @property
    def is_host(self) -> bool:
        return self.kind in _HOSTS

    def device(self, devices: Sequence[Device]) -> Device | None:
        """The location's device, None for the host; DriverFailure if it is neither."""
        if self.is_host:
            if self.kind == HOST_NUMA and self.number != 0:
                raise DriverFailure(INVALID_VALUE, f"there is no NUMA node {self.number}")
            return None
        if self.kind != DEVICE:
            raise DriverFailure(INVALID_VALUE, f"memory cannot be at location type {self.kind}")
        if not 0 <= self.number < len(devices):
            raise DriverFailure(INVALID_DEVICE, f"there is no device {self.number}")
        return devices[self.number]


def of_ordinal(ordinal: int) -> Location:
    """The location that older calls name by a device's ordinal, or CU_DEVICE_CPU."""
    return Location(HOST) if ordinal == CPU else Location(DEVICE, ordinal)
