"""Cellar, abi. NVML's functions: what the software GPU reports of its devices to managing programs.

Programs ask for counts, names and memory before they call the driver, so these functions do not
need it initialised. A device's handle is its ordinal plus one. Features that our devices do not
have, like a fan or a clock, are NOT_SUPPORTED, which callers know from real devices.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.calls.errors_and_entry_points import DRIVER_VERSION
from cudasync.softgpu.abi.marshalling.pointers import (
    get_bytes,
    get_text,
    get_u32,
    need,
    put_i32,
    put_u32,
)
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.context import Context, Device
    from cudasync.softgpu.core.machine import Machine

    Call = Callable[..., None]

SUCCESS: Final = 0
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
ARGUMENT_VERSION_MISMATCH: Final = 25
UNKNOWN: Final = 999

# The oldest driver that runs programs of this major version: "CUDA Compatibility", minor versions.
_DRIVER: Final = {12: "525.0.0"}.get(DRIVER_VERSION // 1000, "580.0.0")
_ARCHITECTURES: Final = {(7, 5): 6, (8, 0): 7, (9, 0): 9, (10, 0): 10, (12, 0): 10}
_NO_VALUE: Final = 2**64 - 1
_UUID_PREFIX: Final = "GPU-"


class NvmlFailure(Exception):
    """A call that returns `code`."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"nvmlReturn {code}")


_KINDS: Final = {"p": ctypes.c_uint64, "u": ctypes.c_uint}

CALLS: Final[dict[str, tuple[Call, tuple[Any, ...]]]] = {}
"""By name: the function, called with the machine and integers, and the C types of the integers."""


def export_nvml(kinds: str, *names: str) -> Callable[[Call], Call]:
    """Enter the decorated function; its arguments are pointers and handles, or unsigned ints."""

    def enter(call: Call) -> Call:
        CALLS.update(dict.fromkeys(names, (call, tuple(_KINDS[kind] for kind in kinds))))
        return call

    return enter


def device_of(machine: Machine, handle: int) -> Device:
    """The device of a handle; NvmlFailure INVALID_ARGUMENT if the handle is invalid."""
    try:
        return machine.device(handle - 1)
    except DriverFailure:
        raise NvmlFailure(INVALID_ARGUMENT) from None


def _put_text(address: int, capacity: int, text: str) -> None:
    data = text.encode() + b"\0"
    if capacity < len(data):
        raise NvmlFailure(INSUFFICIENT_SIZE)
    _put(address, data)


def _put(address: int, data: bytes) -> None:
    need(address, len(data))
    ctypes.memmove(address, data, len(data))


def _check_version(address: int, size: int, version: int) -> None:
    """NvmlFailure unless a structure states that it has this version."""
    if get_u32(address) != size | version << 24:
        raise NvmlFailure(ARGUMENT_VERSION_MISMATCH)


# The system


@export_nvml("pu", "nvmlSystemGetDriverVersion")
def _driver_version(_machine: Machine, text: int, size: int) -> None:
    _put_text(text, size, _DRIVER)


@export_nvml("pu", "nvmlSystemGetNVMLVersion")
def _nvml_version(_machine: Machine, text: int, size: int) -> None:
    _put_text(text, size, f"{DRIVER_VERSION // 1000}.{_DRIVER}")


@export_nvml("p", "nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2")
def _cuda_version(_machine: Machine, version: int) -> None:
    put_i32(version, DRIVER_VERSION)


@export_nvml("pu", "nvmlSystemGetDriverBranch")
def _driver_branch(_machine: Machine, info: int, size: int) -> None:
    # nvmlSystemDriverBranchInfo_v1: a version, and 80 characters.
    _check_version(info, 84, 1)
    _put_text(info + 4, min(size, 80), f"r{_DRIVER.split('.')[0]}")


@export_nvml("upu", "nvmlSystemGetProcessName")
def _process_name(_machine: Machine, process: int, text: int, size: int) -> None:
    try:
        name = os.readlink(f"/proc/{process}/exe")
    except OSError:
        if not Path(f"/proc/{process}").exists():
            raise NvmlFailure(NOT_FOUND) from None
        raise NvmlFailure(NOT_SUPPORTED) from None
    need(text, size)
    _put_text(text, size, name[: max(0, size - 1)])


# Finding devices


@export_nvml("p", "nvmlDeviceGetCount", "nvmlDeviceGetCount_v2")
def _device_count(machine: Machine, count: int) -> None:
    put_u32(count, len(machine.devices))


def put_handle(address: int, device: Device) -> None:
    """Write a device's handle."""
    _put(address, struct.pack("<Q", device.ordinal + 1))


@export_nvml("up", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2")
def _by_index(machine: Machine, index: int, handle: int) -> None:
    put_handle(handle, device_of(machine, index + 1))


def uuid_text(device: Device) -> str:
    """A device's UUID in NVML's notation."""
    text = device.uuid.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return _UUID_PREFIX + "-".join(parts)


def _find(machine: Machine, text: str, name: Callable[[Device], str]) -> Device:
    for device in machine.devices:
        if name(device).lower() == text.lower():
            return device
    raise NvmlFailure(NOT_FOUND)


@export_nvml("pp", "nvmlDeviceGetHandleByUUID")
def _by_uuid(machine: Machine, text: int, handle: int) -> None:
    # cuda.core gives a UUID without the prefix, like the driver's.
    wanted = get_text(text).removeprefix(_UUID_PREFIX)
    put_handle(handle, _find(machine, f"{_UUID_PREFIX}{wanted}", uuid_text))


@export_nvml("pp", "nvmlDeviceGetHandleByUUIDV")
def _by_uuid_of_kind(machine: Machine, uuid: int, handle: int) -> None:
    # nvmlUUID_v1: a version, a kind, and 41 characters or 16 bytes.
    _check_version(uuid, 52, 1)
    kind = get_u32(uuid + 4)
    need(uuid, 52)
    if kind == 1:
        put_handle(handle, _find(machine, get_text(uuid + 8), uuid_text))
    elif kind == 2:
        wanted = ctypes.string_at(uuid + 8, 16).hex()
        put_handle(handle, _find(machine, wanted, lambda device: device.uuid.hex()))
    else:
        raise NvmlFailure(INVALID_ARGUMENT)


def _bus_id(device: Device) -> str:
    return f"00000000:{device.ordinal + 1:02X}:00.0"


@export_nvml("pp", "nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetHandleByPciBusId_v2")
def _by_bus_id(machine: Machine, text: int, handle: int) -> None:
    domain, _, rest = get_bytes(text).decode("utf-8", "replace").partition(":")
    put_handle(handle, _find(machine, f"{domain.zfill(8)}:{rest}", _bus_id))


# A device


@export_nvml("ppu", "nvmlDeviceGetName")
def _name(machine: Machine, handle: int, text: int, size: int) -> None:
    _put_text(text, size, device_of(machine, handle).name)


@export_nvml("ppu", "nvmlDeviceGetUUID")
def _uuid(machine: Machine, handle: int, text: int, size: int) -> None:
    _put_text(text, size, uuid_text(device_of(machine, handle)))


@export_nvml("pp", "nvmlDeviceGetIndex", "nvmlDeviceGetMinorNumber")
def _index(machine: Machine, handle: int, index: int) -> None:
    put_u32(index, device_of(machine, handle).ordinal)


@export_nvml("pp", "nvmlDeviceGetBrand", "nvmlDeviceGetComputeMode")
def _nothing_special(machine: Machine, handle: int, kind: int) -> None:
    # The brand is unknown; the compute mode is the default.
    device_of(machine, handle)
    put_u32(kind, 0)


@export_nvml("pp", "nvmlDeviceGetArchitecture")
def _architecture(machine: Machine, handle: int, architecture: int) -> None:
    has = device_of(machine, handle).capability
    put_u32(architecture, _ARCHITECTURES[has.major, has.minor])


@export_nvml("ppp", "nvmlDeviceGetCudaComputeCapability")
def _capability(machine: Machine, handle: int, major: int, minor: int) -> None:
    has = device_of(machine, handle).capability
    put_i32(major, has.major)
    put_i32(minor, has.minor)


def _memory(machine: Machine, handle: int) -> tuple[int, int, int]:
    device = device_of(machine, handle)
    used = min(device.total_bytes, machine.virtual.physical.used_bytes(device))
    return device.total_bytes, device.total_bytes - used, used


@export_nvml("pp", "nvmlDeviceGetMemoryInfo")
def _memory_info(machine: Machine, handle: int, info: int) -> None:
    _put(info, struct.pack("<3Q", *_memory(machine, handle)))


@export_nvml("pp", "nvmlDeviceGetMemoryInfo_v2")
def _memory_info_2(machine: Machine, handle: int, info: int) -> None:
    total, free, used = _memory(machine, handle)
    _check_version(info, 40, 2)
    _put(info + 8, struct.pack("<4Q", total, 0, free, used))


@export_nvml("pp", "nvmlDeviceGetUtilizationRates")
def _utilization(machine: Machine, handle: int, rates: int) -> None:
    device_of(machine, handle)
    _put(rates, bytes(8))


@export_nvml("pp", "nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v3")
def _pci_info(machine: Machine, handle: int, info: int) -> None:
    device = device_of(machine, handle)
    names = _bus_id(device)[4:].encode(), _bus_id(device).encode()
    _put(info, struct.pack("<16s5I32s", names[0], 0, device.ordinal + 1, 0, 0, 0, names[1]))


@export_nvml("pp", "nvmlDeviceGetPciInfoExt")
def _pci_info_more(machine: Machine, handle: int, info: int) -> None:
    device = device_of(machine, handle)
    _check_version(info, 64, 1)
    # Of PCI's classes, 3 and 2 are a 3D controller.
    numbers = (0, device.ordinal + 1, 0, 0, 0, 3, 2)
    _put(info + 4, struct.pack("<7I32s", *numbers, _bus_id(device).encode()))


@export_nvml(
    "ppp", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3"
)
def _compute_processes(machine: Machine, handle: int, count: int, infos: int) -> None:
    """The processes with a context on the device: each process has a software GPU of its own."""
    device = device_of(machine, handle)
    room = get_u32(count)
    found = int(any(context.device is device for context in _contexts(machine)))
    put_u32(count, found)
    if found > room:
        raise NvmlFailure(INSUFFICIENT_SIZE)
    if found:
        # nvmlProcessInfo_t: the process, its memory, and two MIG instance ids that mean "none".
        _put(infos, struct.pack("<IxxxxQII", os.getpid(), _NO_VALUE, 2**32 - 1, 2**32 - 1))


def _contexts(machine: Machine) -> list[Context]:
    return [
        context
        for context in machine.contexts
        if not context.is_destroyed and (not context.is_primary or context.device.primary_uses)
    ]
