"""Floor 1. The memory of a device: total, free, and held by the driver after frees."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from cuda.bindings import driver

from cudasync.driver.probe import LIBRARY, ensure_driver
from cudasync.driver.result import check
from cudasync.driver.streams.open_captures import Relaxed

if TYPE_CHECKING:
    from cudasync.driver.context import Context

_FUNCTION = "cudasyncHeldBytes"


class DeviceMemory(NamedTuple):
    """Memory of a device, in bytes."""

    total_bytes: int
    # Bytes that can be allocated now. (cuMemGetInfo)
    free_bytes: int
    # Freed bytes that are kept for later: by the device's default pool, or by the software GPU,
    # of all its devices and the host's pinned memory together.
    held_bytes: int


def memory_of(context: Context, ordinal: int) -> DeviceMemory:
    """The present memory of a device. Does not wait."""
    context.enter()
    free, total = check(driver.cuMemGetInfo(), "cuMemGetInfo")
    held = held_by_software()
    return DeviceMemory(int(total), int(free), _held_by_pool(ordinal) if held is None else held[0])


def held_by_software() -> tuple[int, int] | None:
    """The freed bytes that the software GPU holds, and their limit; None on a real driver."""
    ensure_driver()
    # Looked up by name: no other driver has it.
    found: Any = getattr(ctypes.CDLL(LIBRARY), _FUNCTION, None)
    if found is None:
        return None
    held, most = ctypes.c_uint64(), ctypes.c_uint64()
    code = found(ctypes.byref(held), ctypes.byref(most))
    assert not code, f"{_FUNCTION} answers {code}"
    return held.value, most.value


def _held_by_pool(ordinal: int) -> int:
    """The reserved but unused bytes of the default pool."""
    kinds = driver.CUmemPool_attribute
    pool = check(driver.cuDeviceGetDefaultMemPool(ordinal), "cuDeviceGetDefaultMemPool")
    with Relaxed():
        reserved, used = (
            int(check(driver.cuMemPoolGetAttribute(pool, kind), "cuMemPoolGetAttribute"))
            for kind in (
                kinds.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                kinds.CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
            )
        )
    return reserved - used
