"""Cellar. Driver calls about devices."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.device_attributes import device_attribute
from cudasync.softgpu.abi.marshalling.pointers import (
    get_i32,
    get_text,
    need,
    put_i32,
    put_text,
    put_u32,
    put_u64,
)
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_DEVICE,
    INVALID_VALUE,
    DriverFailure,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@export("cuDeviceGet")
def cu_device_get(machine: Machine, device: int, ordinal: int) -> None:
    put_i32(device, machine.device(ordinal).ordinal)


@export("cuDeviceGetCount")
def cu_device_get_count(machine: Machine, count: int) -> None:
    put_i32(count, len(machine.devices))


@export("cuDeviceGetName")
def cu_device_get_name(machine: Machine, name: int, capacity: int, device: int) -> None:
    put_text(name, capacity, machine.device(device).name)


@export("cuDeviceGetUuid")
def cu_device_get_uuid(machine: Machine, uuid: int, device: int) -> None:
    data = machine.device(device).uuid
    need(uuid, len(data))
    ctypes.memmove(uuid, data, len(data))


@export("cuDeviceTotalMem")
def cu_device_total_mem(machine: Machine, size: int, device: int) -> None:
    put_u64(size, machine.device(device).total_bytes)


@export("cuDeviceGetAttribute")
def cu_device_get_attribute(machine: Machine, value: int, attribute: int, device: int) -> None:
    put_i32(value, device_attribute(machine.device(device), attribute))


@export("cuDeviceComputeCapability")
def cu_device_compute_capability(machine: Machine, major: int, minor: int, device: int) -> None:
    put_i32(major, device_attribute(machine.device(device), 75))
    put_i32(minor, device_attribute(machine.device(device), 76))


@export("cuDeviceGetPCIBusId")
def cu_device_get_pci_bus_id(machine: Machine, text: int, capacity: int, device: int) -> None:
    put_text(text, capacity, f"0000:{machine.device(device).ordinal + 1:02X}:00.0")


@export("cuDeviceGetByPCIBusId")
def cu_device_get_by_pci_bus_id(machine: Machine, device: int, text: int) -> None:
    parts = get_text(text).split(":")
    try:
        bus = int(parts[-2], 16)
    except (IndexError, ValueError):
        raise DriverFailure(INVALID_VALUE, "the text is not a PCI bus id") from None
    put_i32(device, machine.device(bus - 1).ordinal)


@export("cuDeviceGetLuid")
def cu_device_get_luid(machine: Machine, luid: int, mask: int, device: int) -> None:
    need(luid)
    ctypes.memmove(luid, machine.device(device).ordinal.to_bytes(8, "little"), 8)
    put_u32(mask, 1)


@export("cuDeviceCanAccessPeer")
def cu_device_can_access_peer(machine: Machine, answer: int, device: int, peer: int) -> None:
    put_i32(answer, int(machine.peers.include(machine.device(device), machine.device(peer))))


@export("cuDeviceGetP2PAttribute")
def cu_device_get_p2p_attribute(
    machine: Machine, value: int, attribute: int, source: int, target: int
) -> None:
    if machine.device(source) is machine.device(target):
        raise DriverFailure(INVALID_VALUE, "a device is not a peer of itself")
    # CUdevice_P2PAttribute: access supported, native atomics; 0 for rank and array access.
    reach = machine.peers.include(machine.device(source), machine.device(target))
    put_i32(value, int(reach and attribute in (2, 3)))


@export("cuDeviceGetExecAffinitySupport")
def cu_device_get_exec_affinity_support(
    machine: Machine, answer: int, _kind: int, device: int
) -> None:
    machine.device(device)
    put_i32(answer, 0)


@export("cuDeviceGetProperties")
def cu_device_get_properties(machine: Machine, properties: int, device: int) -> None:
    found = machine.device(device)
    # CUdevprop: by the numbers of the equal attributes.
    numbers = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    values = [device_attribute(found, number) for number in numbers]
    need(properties, 4 * len(values))
    ctypes.memmove(properties, (ctypes.c_int * len(values))(*values), 4 * len(values))


# CUatomicOperationCapability: signed, unsigned, reduction, 32 and 64 bits.
_INTEGER, _BITS, _SUM, _NONE = 0b11111, 0b11000, 0b11100, 0
_ATOMICS = (*[_INTEGER] * 8, _BITS, _BITS, _SUM, _NONE, _NONE)


def _put_atomics(capabilities: int, operations: int, count: int) -> None:
    if not count:
        raise DriverFailure(INVALID_VALUE, "the list of operations is empty")
    need(operations, 4 * count)
    need(capabilities, 4 * count)
    for index in range(count):
        operation = get_i32(operations + 4 * index)
        if not 0 <= operation < len(_ATOMICS):
            raise DriverFailure(INVALID_VALUE, f"there is no atomic operation {operation}")
        put_u32(capabilities + 4 * index, _ATOMICS[operation])


@export("cuDeviceGetHostAtomicCapabilities")
def cu_device_get_host_atomic_capabilities(
    machine: Machine, capabilities: int, operations: int, count: int, device: int
) -> None:
    machine.device(device)
    _put_atomics(capabilities, operations, count)


@export("cuDeviceGetP2PAtomicCapabilities")
def cu_device_get_p2p_atomic_capabilities(
    machine: Machine, capabilities: int, operations: int, count: int, source: int, target: int
) -> None:
    if machine.device(source) is machine.device(target):
        raise DriverFailure(INVALID_DEVICE, "a device is not a peer of itself")
    _put_atomics(capabilities, operations, count)
    if not machine.peers.include(machine.device(source), machine.device(target)):
        ctypes.memset(capabilities, 0, 4 * count)
