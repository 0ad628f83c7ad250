"""Cellar, core. Pool files: represent a memory pool in other processes by its location."""

from __future__ import annotations

import os
import struct
from typing import Final

from cudasync.softgpu.core.driver_types.memory_locations import Location
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)

_PLACE: Final = struct.Struct("<iiI")
_NAME: Final = "cudasync-pool"


def check_handle_types(handle_types: int) -> None:
    """DriverFailure for unsupported handle types of pools."""
    if handle_types not in (0, 1):
        raise DriverFailure(NOT_SUPPORTED, "pools can only be exported as a file descriptor")


def pool_file(location: Location, mark: int) -> int:
    """The descriptor of a new pool file."""
    descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    os.write(descriptor, _PLACE.pack(location.kind, location.number, mark))
    return descriptor


def read_pool(descriptor: int) -> tuple[Location, int]:
    """The location and mark of a pool; DriverFailure INVALID_VALUE for any other file."""
    try:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        place = os.pread(descriptor, _PLACE.size, 0)
    except OSError as problem:
        raise DriverFailure(INVALID_VALUE, str(problem)) from None
    if not name.startswith(f"/memfd:{_NAME} ") or len(place) != _PLACE.size:
        raise DriverFailure(
            INVALID_VALUE, f"the file descriptor leads to {name}, not to a memory pool"
        )
    kind, number, mark = _PLACE.unpack(place)
    return Location(kind, number), mark
