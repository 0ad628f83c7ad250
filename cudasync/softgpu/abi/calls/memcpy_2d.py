"""Cellar. Driver calls that copy rectangles: rows of bytes, with a pitch at either end."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import structure_at
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.abi.textures.copies import copy_ends
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory import box_copies

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.copy_commands import Copy, Place
    from cudasync.softgpu.core.memory.memory_manager import MemoryManager

_DEFAULT = 0
# CUmemorytype.
_HOST, _DEVICE, _ARRAY, _UNIFIED = 1, 2, 3, 4


class _End(ctypes.Structure):
    """One side of CUDA_MEMCPY2D."""

    _fields_ = (
        ("x_bytes", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("kind", ctypes.c_uint),
        ("host", ctypes.c_size_t),
        ("device", ctypes.c_uint64),
        ("array", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t),
    )


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        ("source", _End),
        ("target", _End),
        ("width_bytes", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


def _place(memory: MemoryManager, end: _End, width: int, height: int) -> tuple[Place, int]:
    """The place of an end's first byte, and its pitch."""
    if end.kind not in (_HOST, _DEVICE, _UNIFIED):
        raise DriverFailure(INVALID_VALUE, f"unknown memory type {end.kind}")
    pitch = end.pitch or width
    if pitch < end.x_bytes + width and height > 1:
        raise DriverFailure(INVALID_VALUE, f"the pitch {pitch} is less than the bytes of a row")
    base = end.host if end.kind == _HOST else end.device
    address = base + end.y * pitch + end.x_bytes
    span = (height - 1) * pitch + width if height and width else 0
    find = memory.place if end.kind == _DEVICE else memory.any_place
    return find(address, span), pitch


def _end(machine: Machine, end: _End) -> box_copies.End:
    if end.kind == _ARRAY:
        return machine.arrays.copied(end.array).end(end.x_bytes, end.y)
    address = end.host if end.kind == _HOST else end.device
    return box_copies.End(end.kind, address, end.x_bytes, end.y, 0, end.pitch)


def _copy(machine: Machine, description: int, stream: int) -> Copy | box_copies.BoxCopy:
    what = structure_at(_Copy2D, description)
    memory = machine.memory
    width, height = what.width_bytes, what.height
    if _ARRAY in (what.source.kind, what.target.kind):
        ends = _end(machine, what.target), _end(machine, what.source)
        return copy_ends(machine, *ends, (width, height, 1), stream)
    source, source_pitch = _place(memory, what.source, width, height)
    target, target_pitch = _place(memory, what.target, width, height)
    return machine.transfers.copy_rows(
        machine.streams.get(stream),
        target,
        source,
        width,
        rows=height,
        target_pitch=target_pitch,
        source_pitch=source_pitch,
    )


@export("cuMemcpy2DAsync")
def cu_memcpy_2d_async(machine: Machine, description: int, stream: int) -> None:
    _copy(machine, description, stream)


@export("cuMemcpy2D")
def cu_memcpy_2d(machine: Machine, description: int) -> None:
    machine.streams.finish(_copy(machine, description, _DEFAULT))


@export("cuMemcpy2DUnaligned")
def cu_memcpy_2d_unaligned(machine: Machine, description: int) -> None:
    machine.streams.finish(_copy(machine, description, _DEFAULT))
