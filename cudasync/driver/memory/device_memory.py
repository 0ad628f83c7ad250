"""Floor 1. How much memory a device has, and what the driver holds of it that was freed."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from cuda.bindings import driver

from cudasync.driver.probe import LIBRARY, ensure_driver
from cudasync.driver.result import check

if TYPE_CHECKING:
    from cudasync.driver.context import Context

_FUNCTION = "cudasyncHeldBytes"


class DeviceMemory(NamedTuple):
    """Memory of a device, in bytes."""

    total_bytes: int
    # What can be allocated now. (cuMemGetInfo)
    free_bytes: int
    # What was freed and is kept for later: by the device's default pool, or by the software GPU,
    # of all its devices and the host's pinned memory together.
    held_bytes: int


def memory_of(context: Context, ordinal: int) -> DeviceMemory:
    """What a device has now. Does not wait."""
    context.enter()
    free, total = check(driver.cuMemGetInfo(), "cuMemGetInfo")
    held = held_by_software()
    return DeviceMemory(int(total), int(free), _held_by_pool(ordinal) if held is None else held[0])


def held_by_software() -> tuple[int, int] | None:
    """What the software GPU holds of freed memory, and at most; None of a real driver."""
    ensure_driver()
    # Found by name: no other driver has it.
    found: Any = getattr(ctypes.CDLL(LIBRARY), _FUNCTION, None)
    if found is None:
        return None
    held, most = ctypes.c_uint64(), ctypes.c_uint64()
    code = found(ctypes.byref(held), ctypes.byref(most))
    assert not code, f"{_FUNCTION} answers {code}"
    return held.value, most.value


def _held_by_pool(ordinal: int) -> int:
    """What the default pool has reserved and nobody uses."""
    kinds = driver.CUmemPool_attribute
    pool = check(driver.cuDeviceGetDefaultMemPool(ordinal), "cuDeviceGetDefaultMemPool")
    reserved, used = (
        int(check(driver.cuMemPoolGetAttribute(pool, kind), "cuMemPoolGetAttribute"))
        for kind in (
            kinds.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            kinds.CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        )
    )
    return reserved - used
