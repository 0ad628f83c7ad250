"""Cellar. Driver calls that copy and fill memory.

A call without a stream uses the legacy default stream. If it touches host memory, it waits for the
copy. Copies between devices and memsets are only enqueued, as the driver may do.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.stub.registry import export

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.copy_commands import Fill, Place

_DEFAULT = 0


@export("cuMemcpyHtoDAsync")
def cu_memcpy_htod_async(
    machine: Machine, target: int, source: int, size: int, stream: int
) -> None:
    memory = machine.memory
    machine.transfers.copy(
        machine.streams.get(stream),
        memory.place(target, size),
        memory.any_place(source, size),
        size,
    )


@export("cuMemcpyDtoHAsync")
def cu_memcpy_dtoh_async(
    machine: Machine, target: int, source: int, size: int, stream: int
) -> None:
    memory = machine.memory
    machine.transfers.copy(
        machine.streams.get(stream),
        memory.any_place(target, size),
        memory.place(source, size),
        size,
    )


@export("cuMemcpyDtoDAsync")
def cu_memcpy_dtod_async(
    machine: Machine, target: int, source: int, size: int, stream: int
) -> None:
    memory = machine.memory
    machine.transfers.copy(
        machine.streams.get(stream), memory.place(target, size), memory.place(source, size), size
    )


@export("cuMemcpyAsync")
def cu_memcpy_async(machine: Machine, target: int, source: int, size: int, stream: int) -> None:
    memory = machine.memory
    machine.transfers.copy(
        machine.streams.get(stream),
        memory.any_place(target, size),
        memory.any_place(source, size),
        size,
    )


@export("cuMemcpyPeerAsync")
def cu_memcpy_peer_async(
    machine: Machine,
    target: int,
    target_context: int,
    source: int,
    source_context: int,
    size: int,
    stream: int,
) -> None:
    machine.contexts.get(target_context)
    machine.contexts.get(source_context)
    memory = machine.memory
    ends = memory.place(target, size), memory.place(source, size)
    machine.transfers.copy(machine.streams.get(stream), *ends, size, is_peer=True)


def _copy_now(machine: Machine, target: Place, source: Place, size: int) -> None:
    machine.transfers.copy_now(machine.streams.get(_DEFAULT), target, source, size)


@export("cuMemcpyHtoD")
def cu_memcpy_htod(machine: Machine, target: int, source: int, size: int) -> None:
    memory = machine.memory
    _copy_now(machine, memory.place(target, size), memory.any_place(source, size), size)


@export("cuMemcpyDtoH")
def cu_memcpy_dtoh(machine: Machine, target: int, source: int, size: int) -> None:
    memory = machine.memory
    _copy_now(machine, memory.any_place(target, size), memory.place(source, size), size)


@export("cuMemcpyDtoD")
def cu_memcpy_dtod(machine: Machine, target: int, source: int, size: int) -> None:
    memory = machine.memory
    ends = memory.place(target, size), memory.place(source, size)
    copy = machine.transfers.copy(machine.streams.get(_DEFAULT), *ends, size)
    if any(end.allocation is not None and end.allocation.is_synchronous for end in ends):
        machine.streams.finish(copy)


@export("cuMemcpy")
def cu_memcpy(machine: Machine, target: int, source: int, size: int) -> None:
    memory = machine.memory
    _copy_now(machine, memory.any_place(target, size), memory.any_place(source, size), size)


@export("cuMemcpyPeer")
def cu_memcpy_peer(
    machine: Machine,
    target: int,
    target_context: int,
    source: int,
    source_context: int,
    size: int,
) -> None:
    cu_memcpy_peer_async(machine, target, target_context, source, source_context, size, _DEFAULT)


def _fill(
    machine: Machine,
    stream: int,
    address: int,
    pattern: bytes,
    count: int,
    rows: int = 1,
    pitch: int = 0,
) -> Fill:
    target = machine.streams.get(stream)
    return machine.transfers.fill(target, address, pattern, count, rows=rows, pitch=pitch)


def _fill_now(
    machine: Machine, address: int, pattern: bytes, count: int, rows: int = 1, pitch: int = 0
) -> None:
    """For device memory it returns at once; for memory visible to the host it waits.

    CUDA driver API, "API synchronization behavior": memset.
    """
    filling = _fill(machine, _DEFAULT, address, pattern, count, rows, pitch)
    found = machine.memory.find(address)
    if found is not None and (found.kind.is_host or found.kind.is_managed or found.is_synchronous):
        machine.streams.finish(filling)


@export("cuMemsetD8Async")
def cu_memset_d8_async(machine: Machine, address: int, value: int, count: int, stream: int) -> None:
    _fill(machine, stream, address, struct.pack("<B", value), count)


@export("cuMemsetD16Async")
def cu_memset_d16_async(
    machine: Machine, address: int, value: int, count: int, stream: int
) -> None:
    _fill(machine, stream, address, struct.pack("<H", value), count)


@export("cuMemsetD32Async")
def cu_memset_d32_async(
    machine: Machine, address: int, value: int, count: int, stream: int
) -> None:
    _fill(machine, stream, address, struct.pack("<I", value), count)


@export("cuMemsetD8")
def cu_memset_d8(machine: Machine, address: int, value: int, count: int) -> None:
    _fill_now(machine, address, struct.pack("<B", value), count)


@export("cuMemsetD16")
def cu_memset_d16(machine: Machine, address: int, value: int, count: int) -> None:
    _fill_now(machine, address, struct.pack("<H", value), count)


@export("cuMemsetD32")
def cu_memset_d32(machine: Machine, address: int, value: int, count: int) -> None:
    _fill_now(machine, address, struct.pack("<I", value), count)


@export("cuMemsetD2D8Async")
def cu_memset_d2d8_async(
    machine: Machine, address: int, pitch: int, value: int, width: int, height: int, stream: int
) -> None:
    _fill(machine, stream, address, struct.pack("<B", value), width, height, pitch)


@export("cuMemsetD2D16Async")
def cu_memset_d2d16_async(
    machine: Machine, address: int, pitch: int, value: int, width: int, height: int, stream: int
) -> None:
    _fill(machine, stream, address, struct.pack("<H", value), width, height, pitch)


@export("cuMemsetD2D32Async")
def cu_memset_d2d32_async(
    machine: Machine, address: int, pitch: int, value: int, width: int, height: int, stream: int
) -> None:
    _fill(machine, stream, address, struct.pack("<I", value), width, height, pitch)


@export("cuMemsetD2D8")
def cu_memset_d2d8(
    machine: Machine, address: int, pitch: int, value: int, width: int, height: int
) -> None:
    _fill_now(machine, address, struct.pack("<B", value), width, height, pitch)


@export("cuMemsetD2D16")
def cu_memset_d2d16(
    machine: Machine, address: int, pitch: int, value: int, width: int, height: int
) -> None:
    _fill_now(machine, address, struct.pack("<H", value), width, height, pitch)


@export("cuMemsetD2D32")
def cu_memset_d2d32(
    machine: Machine, address: int, pitch: int, value: int, width: int, height: int
) -> None:
    _fill_now(machine, address, struct.pack("<I", value), width, height, pitch)
