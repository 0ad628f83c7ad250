"""Cellar. Driver calls that describe an address: CUpointer_attribute by number.

`cuPointerGetAttributes` answers for any address, with zeros if the driver does not know it.
`cuPointerGetAttribute` refuses such an address.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import get_i32, get_u64, need
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory.allocation_table import Allocation, MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine

_HOST, _DEVICE = 1, 2
_DEVICE_ONLY = frozenset(
    {MemoryKind.DEVICE, MemoryKind.POOL, MemoryKind.VARIABLE, MemoryKind.VIRTUAL}
)

_SYNC_MEMOPS = 6

_INT, _UINT, _WORD = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64


def _ordinal_of(allocation: Allocation) -> int:
    return allocation.context.device.ordinal


def _context_of(allocation: Allocation) -> int:
    """The handle of the context; 0 for mapped memory, which belongs to none."""
    return 0 if allocation.kind is MemoryKind.VIRTUAL else allocation.context.handle


def _pool_of(allocation: Allocation) -> int:
    return allocation.pool.handle if allocation.pool is not None else 0


# Number: the C type of the answer, the answer, and the answer for an unknown address.
_ATTRIBUTES: dict[
    int,
    tuple[
        type[ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_uint64],
        Callable[[Allocation, int], int],
        int,
    ],
] = {
    1: (_WORD, lambda a, _: _context_of(a), 0),
    2: (_UINT, lambda a, _: _HOST if a.kind.is_host else _DEVICE, 0),
    3: (_WORD, lambda _, address: address, 0),
    4: (_WORD, lambda a, address: 0 if a.kind in _DEVICE_ONLY else address, 0),
    _SYNC_MEMOPS: (_INT, lambda a, _: int(a.is_synchronous), 0),
    7: (_WORD, lambda a, _: a.number, 0),
    8: (_INT, lambda a, _: int(a.kind.is_managed), 0),
    9: (_INT, lambda a, _: _ordinal_of(a), -2),
    10: (_INT, lambda _a, _: 0, 0),
    11: (_WORD, lambda a, _: a.start, 0),
    12: (_WORD, lambda a, _: a.size_bytes, 0),
    13: (_INT, lambda a, _: int(not a.is_freeing), 0),
    14: (_WORD, lambda _a, _: 0, 0),
    15: (_INT, lambda _a, _: 0, 0),
    16: (_INT, lambda _a, _: 3, 0),
    17: (_WORD, lambda a, _: _pool_of(a), 0),
    18: (_WORD, lambda a, _: a.size_bytes, 0),
    19: (_WORD, lambda a, _: a.start, 0),
    20: (_WORD, lambda a, _: a.number, 0),
    21: (_INT, lambda _a, _: 0, 0),
}


@export("cuPointerGetAttribute")
def cu_pointer_get_attribute(machine: Machine, data: int, attribute: int, address: int) -> None:
    found = machine.memory.find(address)
    need(data)
    if found is None or found.is_freeing:
        raise DriverFailure(INVALID_VALUE, f"{address:#x} is not memory of the driver's")
    _answer(found, data, attribute, address)


@export("cuPointerGetAttributes")
def cu_pointer_get_attributes(
    machine: Machine, count: int, attributes: int, data: int, address: int
) -> None:
    found = machine.memory.find(address)
    if found is not None and found.is_freeing:
        found = None
    for index in range(count):
        _answer(found, get_u64(data + 8 * index), get_i32(attributes + 4 * index), address)


@export("cuPointerSetAttribute")
def cu_pointer_set_attribute(machine: Machine, value: int, attribute: int, address: int) -> None:
    need(value)
    found = machine.memory.find(address)
    if attribute != _SYNC_MEMOPS or found is None or found.is_freeing:
        raise DriverFailure(INVALID_VALUE, f"pointer attribute {attribute} cannot be set")
    found.is_synchronous = get_i32(value) != 0


def _answer(found: Allocation | None, data: int, attribute: int, address: int) -> None:
    if attribute not in _ATTRIBUTES:
        raise DriverFailure(INVALID_VALUE, f"there is no pointer attribute {attribute}")
    kind, read, unknown = _ATTRIBUTES[attribute]
    need(data)
    kind.from_address(data).value = unknown if found is None else read(found, address)
