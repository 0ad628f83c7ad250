"""Cellar, abi. NVML's topology functions: a device's processors, and distances between devices.

All software GPUs lie in the host's memory. Each is equally near to every processor, and any two are
beneath one host bridge. A call that would change a setting is refused: NO_PERMISSION.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import get_u32, need, put_u32
from cudasync.softgpu.abi.other_libraries.nvml_calls import (
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NvmlFailure,
    device_of,
    export_nvml,
    put_handle,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.core.context import Device
    from cudasync.softgpu.core.machine import Machine

_WORD_BITS: Final = 64
_SCOPES: Final = range(2)

# nvmlGpuTopologyLevel_t.
_INTERNAL, _HOST_BRIDGE = 0, 30

# nvmlGpuP2PCapsIndex_t: read, write, NVLink, atomics, any; nvmlGpuP2PStatus_t.
_NVLINK: Final = 2
_CAPABILITIES: Final = range(5)
_REACHED, _NOT_REACHED = 0, 5


def _put_set(address: int, words: int, members: Iterable[int]) -> None:
    mask = sum(1 << member for member in members)
    size = 8 * words
    if mask.bit_length() > _WORD_BITS * words:
        raise NvmlFailure(INSUFFICIENT_SIZE)
    need(address, max(1, size))
    ctypes.memmove(address, mask.to_bytes(size, "little"), size)


def _check_scope(scope: int) -> None:
    if scope not in _SCOPES:
        raise NvmlFailure(INVALID_ARGUMENT)


@export_nvml("pup", "nvmlDeviceGetCpuAffinity")
def _processors(machine: Machine, handle: int, words: int, found: int) -> None:
    device_of(machine, handle)
    _put_set(found, words, os.sched_getaffinity(0))


@export_nvml("pupu", "nvmlDeviceGetCpuAffinityWithinScope")
def _processors_within(machine: Machine, handle: int, words: int, found: int, scope: int) -> None:
    _check_scope(scope)
    _processors(machine, handle, words, found)


@export_nvml("pupu", "nvmlDeviceGetMemoryAffinity")
def _memory_nodes(machine: Machine, handle: int, words: int, found: int, scope: int) -> None:
    _check_scope(scope)
    device_of(machine, handle)
    _put_set(found, words, [0])


def _level(one: Device, other: Device) -> int:
    return _INTERNAL if one is other else _HOST_BRIDGE


def _put_devices(count: int, handles: int, devices: list[Device]) -> None:
    """Write as many handles as there is room for; without room, only their number."""
    room = get_u32(count)
    put_u32(count, len(devices))
    if handles:
        for index, device in enumerate(devices[:room]):
            put_handle(handles + 8 * index, device)


@export_nvml("ppp", "nvmlDeviceGetTopologyCommonAncestor")
def _common_ancestor(machine: Machine, one: int, other: int, level: int) -> None:
    put_u32(level, _level(device_of(machine, one), device_of(machine, other)))


@export_nvml("pupp", "nvmlDeviceGetTopologyNearestGpus")
def _nearest(machine: Machine, handle: int, level: int, count: int, handles: int) -> None:
    device = device_of(machine, handle)
    near = [each for each in machine.devices if each is not device]
    _put_devices(count, handles, [each for each in near if _level(device, each) == level])


@export_nvml("upp", "nvmlSystemGetTopologyGpuSet")
def _of_processor(machine: Machine, processor: int, count: int, handles: int) -> None:
    if processor not in os.sched_getaffinity(0):
        raise NvmlFailure(INVALID_ARGUMENT)
    _put_devices(count, handles, machine.devices)


@export_nvml("ppup", "nvmlDeviceGetP2PStatus")
def _peer_status(machine: Machine, one: int, other: int, capability: int, status: int) -> None:
    first, second = device_of(machine, one), device_of(machine, other)
    reached = first is second or machine.peers.include(first, second)
    has = reached and capability in _CAPABILITIES and capability != _NVLINK
    put_u32(status, _REACHED if has else _NOT_REACHED)


# Features that our devices never have, and settings that never change


@export_nvml(
    "pp",
    "nvmlDeviceGetDisplayActive",
    "nvmlDeviceGetDisplayMode",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetPersistenceMode",
)
def _none(machine: Machine, handle: int, answer: int) -> None:
    device_of(machine, handle)
    put_u32(answer, 0)


@export_nvml("p", "nvmlUnitGetCount")
def _unit_count(_machine: Machine, count: int) -> None:
    put_u32(count, 0)


@export_nvml("pu", "nvmlDeviceSetComputeMode", "nvmlDeviceSetPersistenceMode")
def _not_set(machine: Machine, handle: int, _value: int) -> None:
    device_of(machine, handle)
    raise NvmlFailure(NO_PERMISSION)
