"""Cellar. Driver calls that copy in batches, and say when sources may be read.

Copies of a batch have no order among themselves. Here they run in the given order, which is one of
the allowed orders.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.memory_structures import MemLocation
from cudasync.softgpu.abi.marshalling.pointers import get_u64, need, need_no_flags, structure_at
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory import box_copies

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.streams import Stream

# CUmemcpySrcAccessOrder.
_IN_STREAM_ORDER, _DURING_THE_CALL, _ANY = 1, 2, 3
# CUmemcpy3DOperandType.
_POINTER: Final = 1
_ARRAY: Final = 2


class _Attributes(ctypes.Structure):
    """CUmemcpyAttributes."""

    _fields_ = (
        ("order", ctypes.c_int),
        ("source_hint", MemLocation),
        ("target_hint", MemLocation),
        ("flags", ctypes.c_uint),
    )


class _Pointer(ctypes.Structure):
    """CUmemcpy3DOperand, if it is a pointer."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("row_length", ctypes.c_size_t),
        ("layer_height", ctypes.c_size_t),
        ("hint", MemLocation),
    )


class _Array(ctypes.Structure):
    """CUmemcpy3DOperand, if it is an array."""

    _fields_ = (
        ("array", ctypes.c_size_t),
        ("x", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("z", ctypes.c_size_t),
    )


class _Either(ctypes.Union):
    _fields_ = (("pointer", _Pointer), ("array", _Array))


class _Operand(ctypes.Structure):
    """CUmemcpy3DOperand."""

    _fields_ = (("kind", ctypes.c_int), ("of", _Either))


class _Operation(ctypes.Structure):
    """CUDA_MEMCPY3D_BATCH_OP."""

    _fields_ = (
        ("source", _Operand),
        ("target", _Operand),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
        ("order", ctypes.c_int),
        ("flags", ctypes.c_uint),
    )


_MOST_COPIES: Final = 1 << 20
_ATTRIBUTES_BYTES: Final = ctypes.sizeof(_Attributes)
_OPERATION_BYTES: Final = ctypes.sizeof(_Operation)


def _stream(machine: Machine, handle: int) -> Stream:
    stream = machine.streams.get(handle)
    if stream.is_legacy:
        raise DriverFailure(
            INVALID_VALUE, "a batch cannot run on the legacy default stream: use another"
        )
    return stream


def _prepare(
    machine: Machine, stream: Stream, box: box_copies.Box, order: int
) -> Callable[[], box_copies.BoxCopy]:
    """Check a copy now and enqueue it later, so that a batch is enqueued whole or not at all."""
    if order not in (_IN_STREAM_ORDER, _DURING_THE_CALL, _ANY):
        raise DriverFailure(INVALID_VALUE, f"there is no access order {order}")
    target = box_copies.place_of(machine.memory, box.target, box)
    source = box_copies.place_of(machine.memory, box.source, box)
    machine.transfers.check_access(stream.context, target, source)
    is_read_now = order == _DURING_THE_CALL
    copy = machine.transfers.copy_box
    return lambda: copy(stream, box, target, source, is_read_now=is_read_now)


def _line(
    machine: Machine, stream: Stream, sizes: tuple[int, int, int], order: int
) -> Callable[[], box_copies.BoxCopy]:
    target, source, size_bytes = sizes
    ends = [
        box_copies.End(box_copies.UNIFIED, at, pitch=size_bytes, height=1)
        for at in (source, target)
    ]
    box = box_copies.Box(ends[0], ends[1], size_bytes, 1, 1)
    return _prepare(machine, stream, box, order)


@export(
    "cuMemcpyBatchAsync",
    13000,
    "CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, "
    "CUstream",
)
def cu_memcpy_batch_async(
    machine: Machine,
    targets: int,
    sources: int,
    sizes: int,
    count: int,
    attributes: int,
    starts: int,
    attribute_count: int,
    stream: int,
) -> None:
    found = _stream(machine, stream)
    if not 0 < attribute_count <= count <= _MOST_COPIES:
        raise DriverFailure(
            INVALID_VALUE, f"a batch of {count} copies cannot have {attribute_count} attributes"
        )
    for array in (targets, sources, sizes):
        need(array, 8 * count)
    need(attributes, _ATTRIBUTES_BYTES * attribute_count)
    need(starts, 8 * attribute_count)
    begins = [get_u64(starts + 8 * index) for index in range(attribute_count)]
    if begins[0] or begins != sorted(set(begins)) or begins[-1] >= count:
        raise DriverFailure(
            INVALID_VALUE, "the indices of the attributes must start at 0 and increase"
        )
    copies = []
    for index in range(count):
        which = sum(begin <= index for begin in begins) - 1
        order = structure_at(_Attributes, attributes + _ATTRIBUTES_BYTES * which).order
        ends = tuple(get_u64(array + 8 * index) for array in (targets, sources, sizes))
        copies.append(_line(machine, found, (ends[0], ends[1], ends[2]), order))
    for copy in copies:
        copy()


@export(
    "cuMemcpyBatchAsync",
    12080,
    "CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, "
    "size_t *, CUstream",
)
def cu_memcpy_batch_async_12(
    machine: Machine,
    targets: int,
    sources: int,
    sizes: int,
    count: int,
    attributes: int,
    starts: int,
    attribute_count: int,
    _failed: int,
    stream: int,
) -> None:
    cu_memcpy_batch_async(
        machine, targets, sources, sizes, count, attributes, starts, attribute_count, stream
    )


@export("cuMemcpyWithAttributesAsync")
def cu_memcpy_with_attributes_async(
    machine: Machine, target: int, source: int, size: int, attributes: int, stream: int
) -> None:
    order = structure_at(_Attributes, attributes).order
    _line(machine, machine.streams.get(stream), (target, source, size), order)()


def _end(
    machine: Machine, operand: _Operand, width: int, height: int, texel_bytes: int
) -> box_copies.End:
    if operand.kind == _ARRAY:
        of = operand.of.array
        return machine.arrays.copied(of.array).end(of.x * texel_bytes, of.y, of.z)
    if operand.kind != _POINTER:
        raise DriverFailure(INVALID_VALUE, f"there is no operand type {operand.kind}")
    pointer = operand.of.pointer
    return box_copies.End(
        box_copies.UNIFIED,
        pointer.address,
        pitch=(pointer.row_length or width) * texel_bytes,
        height=pointer.layer_height or height,
    )


def _texel_bytes(machine: Machine, operands: tuple[_Operand, _Operand]) -> int:
    """The unit of lengths in bytes: a texel if an operand is an array, otherwise a byte."""
    sizes = {
        machine.arrays.copied(each.of.array.array).shape.texel_bytes
        for each in operands
        if each.kind == _ARRAY
    }
    if len(sizes) > 1:
        raise DriverFailure(INVALID_VALUE, "the arrays must have texels of one size")
    return sizes.pop() if sizes else 1


def _box(machine: Machine, operation: _Operation) -> box_copies.Box:
    o = operation
    operands = o.source, o.target
    size = _texel_bytes(machine, operands)
    ends = [_end(machine, operand, o.width, o.height, size) for operand in operands]
    return box_copies.Box(ends[0], ends[1], o.width * size, o.height, o.depth)


@export(
    "cuMemcpy3DBatchAsync", 13000, "size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream"
)
def cu_memcpy_3d_batch_async(
    machine: Machine, count: int, operations: int, flags: int, stream: int
) -> None:
    found = _stream(machine, stream)
    if not 0 < count <= _MOST_COPIES or flags:
        raise DriverFailure(
            INVALID_VALUE, f"a batch cannot have {count} copies with flags {flags:#x}"
        )
    copies = []
    for index in range(count):
        operation = structure_at(_Operation, operations + _OPERATION_BYTES * index)
        copies.append(_prepare(machine, found, _box(machine, operation), operation.order))
    for copy in copies:
        copy()


@export(
    "cuMemcpy3DBatchAsync",
    12080,
    "size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long, CUstream",
)
def cu_memcpy_3d_batch_async_12(
    machine: Machine, count: int, operations: int, _failed: int, flags: int, stream: int
) -> None:
    cu_memcpy_3d_batch_async(machine, count, operations, flags, stream)


@export("cuMemcpy3DWithAttributesAsync")
def cu_memcpy_3d_with_attributes_async(
    machine: Machine, operation: int, flags: int, stream: int
) -> None:
    need_no_flags(flags)
    found = structure_at(_Operation, operation)
    _prepare(machine, machine.streams.get(stream), _box(machine, found), found.order)()
