"""Cellar. What the software GPU reports of itself: CUdevice_attribute by number.

It poses as a small GPU, of compute capability 8.0 unless another is chosen. The core enforces the
attributes that bound a launch. The others only have to be plausible. Features that are missing are
0, whatever the capability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cuda.bindings import driver

from cudasync.softgpu.core.driver_types.device_limits import (
    MAX_BLOCK,
    MAX_GRID,
    MAX_SHARED_BYTES,
    MAX_THREADS,
    MULTIPROCESSORS,
    REGISTERS,
    TEXTURE_ALIGNMENT,
    TEXTURE_PITCH_ALIGNMENT,
    WARP_SIZE,
)
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Device

_VALUES: Final = {
    1: MAX_THREADS,
    2: MAX_BLOCK[0],
    3: MAX_BLOCK[1],
    4: MAX_BLOCK[2],
    5: MAX_GRID[0],
    6: MAX_GRID[1],
    7: MAX_GRID[2],
    8: MAX_SHARED_BYTES,
    9: 65536,  # total constant memory
    10: WARP_SIZE,
    11: 2**31 - 1,  # max pitch
    12: REGISTERS,
    13: 1_000_000,  # clock rate in kHz
    14: TEXTURE_ALIGNMENT,
    15: 1,  # GPU overlap
    16: MULTIPROCESSORS,
    17: 0,  # kernel exec timeout
    18: 0,  # integrated
    19: 1,  # can map host memory
    20: 0,  # compute mode: default
    30: TEXTURE_ALIGNMENT,  # alignment of surfaces
    31: 1,  # concurrent kernels
    32: 0,  # ECC
    34: 0,  # PCI domain
    35: 0,  # TCC driver
    36: 1_000_000,  # memory clock rate in kHz
    37: 256,  # memory bus width in bits
    38: 4 << 20,  # L2 bytes
    40: 2,  # async engines
    41: 1,  # unified addressing
    50: 0,  # PCI domain id
    51: TEXTURE_PITCH_ALIGNMENT,
    78: 1,  # stream priorities
    79: 1,  # global L1 cache
    80: 1,  # local L1 cache
    82: REGISTERS,
    83: 1,  # managed memory
    86: 1,  # native host atomics
    89: 1,  # concurrent managed access
    91: 1,  # host pointers usable for registered memory
    92: 1,  # stream memory operations, first form
    93: 1,  # and that on 64-bit words
    94: 1,  # stream wait value NOR, first form
    95: 1,  # cooperative launch
    99: 1,  # host memory can be registered
    101: 1,  # direct managed access from host
    102: 1,  # virtual memory
    103: 1,  # and that handed out as a file descriptor
    115: 1,  # memory pools
    119: 1,  # pools are handed out as file descriptors
    122: 1,  # 64-bit stream memory operations
    123: 1,  # stream wait value NOR
    125: 1,  # events between processes
    141: 1,  # virtual memory of the host's NUMA nodes
    142: 1,  # pools there
    144: 1,  # pools of the host
    145: 1,  # virtual memory of the host
}

# Attributes that a field of `Capability` holds.
_OF_CAPABILITY: Final = {
    39: "threads_per_multiprocessor",
    75: "major",
    76: "minor",
    81: "shared_bytes_per_multiprocessor",
    87: "single_to_double_ratio",
    97: "shared_bytes_optin",
    106: "blocks_per_multiprocessor",
    111: "reserved_shared_bytes",
}

_NUMBERS: Final = frozenset(int(attribute) for attribute in driver.CUdevice_attribute)


def device_attribute(device: Device, number: int) -> int:
    """The attribute's value; 0 if it is missing. DriverFailure if `number` is no attribute."""
    if number == 33:  # PCI bus
        return device.ordinal + 1
    value = _VALUES.get(number)
    if value is not None:
        return value
    of_capability = _OF_CAPABILITY.get(number)
    if of_capability is not None:
        return int(getattr(device.capability, of_capability))
    if number not in _NUMBERS:
        raise DriverFailure(INVALID_VALUE, f"there is no device attribute {number}")
    return 0
