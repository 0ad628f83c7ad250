"""Floor 1. Peer access: kernels of one device that use the memory of another device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda.bindings import driver

from cudasync.driver.result import check, failure
from cudasync.errors import CudaError

if TYPE_CHECKING:
    from cudasync.driver.device import Device

_ALREADY_ENABLED = 704

# Pairs of the lives of both contexts: a reset ends the access.
_enabled: set[tuple[object, object]] = set()

# Pairs of lives for which the driver refused: it limits the peers of a device.
_refused: set[tuple[object, object]] = set()

# By ordinals: the answer depends on the machine alone.
_answers: dict[tuple[int, int], bool] = {}


def can_access_peer(device: Device, other: Device) -> bool:
    """True if kernels on `device` can get access to the memory of `other`, another device.

    Copies between the two need no such access: without it, the driver copies through the host.
    (cuDeviceCanAccessPeer)
    """
    key = (device.ordinal, other.ordinal)
    found = _answers.get(key)
    if found is None:
        answer = driver.cuDeviceCanAccessPeer(*key)
        found = _answers[key] = bool(check(answer, "cuDeviceCanAccessPeer"))
    return found


def enable_peer_access(device: Device, other: Device) -> None:
    """Let kernels on `device` use the memory of `other`, allocated before or later.

    Raises ValueError if the hardware does not support it. Repeated calls are harmless. Other
    libraries of the process get the access too, which costs `other` some time at each allocation.
    (cuDeviceCanAccessPeer, cuCtxEnablePeerAccess, cuMemPoolSetAccess)
    """
    theirs = other.context.handle()
    key = (device.context.token, other.context.token)
    if key in _enabled:
        return
    if not can_access_peer(device, other):
        raise ValueError(
            f"{device!r} has no peer access to the memory of {other!r}: copy the memory"
        )
    device.context.enter_anew()
    code = driver.cuCtxEnablePeerAccess(theirs, 0)[0]
    if code and int(code) != _ALREADY_ENABLED:
        raise failure(code, "cuCtxEnablePeerAccess")
    if other.attribute("MEMORY_POOLS_SUPPORTED"):
        # Memory of pools has separate access rights.
        pool = _default_pool(other)
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = device.ordinal
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        check(driver.cuMemPoolSetAccess(pool, [access], 1), "cuMemPoolSetAccess")
    _enabled.add(key)


def gets_peer_access(device: Device, other: Device) -> bool:
    """Enable peer access as `enable_peer_access` does; False if that is not possible."""
    key = (device.context.token, other.context.token)
    if key in _enabled:
        return True
    if key in _refused or not can_access_peer(device, other):
        return False
    try:
        enable_peer_access(device, other)
    except CudaError as error:
        if error.sticky:
            raise
        _refused.add(key)
        return False
    return True


def is_open_to_peers(ptr: int, device: Device) -> bool:
    """True for memory of `device` that peers can use once they have access to the device.

    Memory of a pool has the rights of its pool, and peers get access to the default pool alone.
    (cuPointerGetAttribute)
    """
    if not device.attribute("MEMORY_POOLS_SUPPORTED"):
        return True
    device.context.enter()
    handle = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
    pool = int(check(driver.cuPointerGetAttribute(handle, ptr), "cuPointerGetAttribute"))
    return pool in (0, int(_default_pool(device)))


def _default_pool(device: Device) -> driver.CUmemoryPool:
    answer = driver.cuDeviceGetDefaultMemPool(device.ordinal)
    return check(answer, "cuDeviceGetDefaultMemPool")
