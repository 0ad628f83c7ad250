"""Cellar. The C structures that describe nodes: reads them to works, writes them from works."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Final, TypeVar

from cudasync.softgpu.abi.marshalling.kernel_arguments import pack
from cudasync.softgpu.abi.marshalling.pointers import need, need_code, structure_at
from cudasync.softgpu.core.driver_types.memory_locations import Location
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.graphs.memory_nodes import PROPERTIES_BYTES, AllocationWork
from cudasync.softgpu.core.graphs.memory_operation_nodes import OPERATION_BYTES, BatchWork, batch
from cudasync.softgpu.core.graphs.node_parameters import (
    ChildWork,
    CopyWork,
    FillWork,
    HostWork,
    KernelWork,
    RecordWork,
    WaitWork,
)
from cudasync.softgpu.core.launch.kernel_launch import check_shape
from cudasync.softgpu.core.memory import box_copies

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.graph import Node
    from cudasync.softgpu.core.machine import Machine

_size, _u64, _u32 = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint32


class KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, version 2 and 3."""

    _fields_ = (
        ("function", _size),
        ("grid", _u32 * 3),
        ("block", _u32 * 3),
        ("shared_bytes", _u32),
        ("parameters", _size),
        ("extra", _size),
        ("kernel", _size),
        ("context", _size),
    )


# CUDA's own limit.
_MOST_OPERATIONS: Final = 256


class _CopyEnd(ctypes.Structure):
    """One side of CUDA_MEMCPY3D."""

    _fields_ = (
        ("x_bytes", _size),
        ("y", _size),
        ("z", _size),
        ("level", _size),
        ("kind", _u32),
        ("host", _size),
        ("device", _u64),
        ("array", _size),
        ("reserved", _size),
        ("pitch", _size),
        ("height", _size),
    )


class CopyParams(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = (
        ("source", _CopyEnd),
        ("target", _CopyEnd),
        ("width", _size),
        ("height", _size),
        ("depth", _size),
    )


class FillParams(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS; its second version has a context at the end."""

    _fields_ = (
        ("target", _u64),
        ("pitch", _size),
        ("value", _u32),
        ("word_bytes", _u32),
        ("width", _size),
        ("height", _size),
    )


class HostParams(ctypes.Structure):
    """CUDA_HOST_NODE_PARAMS."""

    _fields_ = (("function", _size), ("user_data", _size))


_S = TypeVar("_S", bound=ctypes.Structure)


def at(structure: type[_S], address: int) -> _S:
    """The structure at an address; DriverFailure if the address is null."""
    return structure_at(structure, address)


def context_of(machine: Machine, handle: int) -> Context:
    """The context that a handle names; the current one for null."""
    context = machine.contexts.get(handle) if handle else machine.context()
    machine.check(context)
    return context


# Kernels


def read_kernel(machine: Machine, address: int, *, is_first: bool = False) -> KernelWork:
    """CUDA_KERNEL_NODE_PARAMS."""
    params = at(KernelParams, address)
    handle, context = params.function, None
    if not handle and not is_first:
        handle, context = params.kernel, context_of(machine, params.context)
    function = machine.modules.function(handle, context)
    machine.check(function.module.context)
    grid, block = tuple(params.grid), tuple(params.block)
    check_shape(function, grid, block, params.shared_bytes)
    return KernelWork(
        machine,
        function,
        grid,
        block,
        params.shared_bytes,
        pack(function, params.parameters, params.extra),
    )


def write_kernel(node: Node, work: KernelWork, address: int, *, is_first: bool = False) -> None:
    """Describe a kernel node. The argument pointers are valid until its parameters are set."""
    params = at(KernelParams, address)
    block = ctypes.create_string_buffer(work.parameters, max(1, len(work.parameters)))
    start = ctypes.addressof(block)
    places = work.function.places
    pointers = (_u64 * max(1, len(places)))(*(start + offset for offset, _ in places))
    node.kept = (block, pointers)
    params.function = work.function.handle
    params.grid[:], params.block[:] = work.grid, work.block
    params.shared_bytes = work.shared_bytes
    params.parameters = ctypes.addressof(pointers) if places else 0
    params.extra = 0
    if not is_first:
        kernel = work.machine.modules.kernel_of(work.function)
        params.kernel = kernel.handle if kernel is not None else 0
        params.context = work.context.handle


# Copies


def read_copy(machine: Machine, address: int, context: int) -> CopyWork:
    """CUDA_MEMCPY3D."""
    box = read_box(machine, at(CopyParams, address))
    where = context_of(machine, context)
    source = box_copies.place_of(machine.memory, box.source, box)
    target = box_copies.place_of(machine.memory, box.target, box)
    machine.transfers.check_access(where, target, source)
    machine.transfers.check_recorded(target, source)
    return CopyWork(box, target, source, where)


def read_box(machine: Machine, params: CopyParams) -> box_copies.Box:
    """The box to copy."""
    if params.source.level or params.target.level:
        raise DriverFailure(INVALID_VALUE, "only a mipmapped array has levels")
    return box_copies.Box(
        _read_end(machine, params.source),
        _read_end(machine, params.target),
        params.width,
        params.height,
        params.depth,
    )


def _read_end(machine: Machine, end: _CopyEnd) -> box_copies.End:
    if end.kind == box_copies.ARRAY:
        return machine.arrays.copied(end.array).end(end.x_bytes, end.y, end.z)
    address = end.host if end.kind == box_copies.HOST else end.device
    return box_copies.End(end.kind, address, end.x_bytes, end.y, end.z, end.pitch, end.height)


def write_copy(work: CopyWork, address: int) -> None:
    """CUDA_MEMCPY3D."""
    params = at(CopyParams, address)
    ctypes.memset(address, 0, ctypes.sizeof(CopyParams))
    _write_end(params.source, work.box.source)
    _write_end(params.target, work.box.target)
    params.width, params.height, params.depth = work.box.width, work.box.height, work.box.depth


def _write_end(params: _CopyEnd, end: box_copies.End) -> None:
    params.kind = end.kind
    if end.kind == box_copies.HOST:
        params.host = end.address
    elif end.kind == box_copies.ARRAY:
        params.array = end.array
    else:
        params.device = end.address
    params.x_bytes, params.y, params.z = end.x_bytes, end.y, end.z
    if end.kind != box_copies.ARRAY:
        params.pitch, params.height = end.pitch, end.height


# Memsets


def read_fill(machine: Machine, address: int, context: int) -> FillWork:
    """CUDA_MEMSET_NODE_PARAMS."""
    params = at(FillParams, address)
    word = params.word_bytes
    if word not in (1, 2, 4) or params.target % word:
        raise DriverFailure(
            INVALID_VALUE, f"a memset cannot have words of {word} bytes at {params.target:#x}"
        )
    width, height = params.width, params.height
    row = width * word
    if height > 1 and params.pitch < row:
        raise DriverFailure(INVALID_VALUE, "the pitch is less than the bytes of a row")
    whole = row + max(0, height - 1) * params.pitch if row and height else 0
    return FillWork(
        machine.memory.place(params.target, whole),
        params.pitch,
        params.value,
        word,
        width,
        height,
        context_of(machine, context),
    )


def write_fill(work: FillWork, address: int) -> None:
    """CUDA_MEMSET_NODE_PARAMS."""
    params = at(FillParams, address)
    params.target, params.pitch, params.value = work.target.address, work.pitch, work.value
    params.word_bytes, params.width, params.height = work.word_bytes, work.width, work.height


# Host functions, events, graphs


def read_host(machine: Machine, address: int) -> HostWork:
    """CUDA_HOST_NODE_PARAMS."""
    params = at(HostParams, address)
    need_code(params.function)
    return HostWork(params.function, params.user_data, machine.host_functions)


def write_host(work: HostWork, address: int) -> None:
    """CUDA_HOST_NODE_PARAMS."""
    params = at(HostParams, address)
    params.function, params.user_data = work.function, work.user_data


def record_work(machine: Machine, event: int) -> RecordWork:
    """A record of the event that a handle names."""
    return RecordWork(machine.streams.event(event))


def wait_work(machine: Machine, event: int) -> WaitWork:
    """A wait for the event that a handle names."""
    return WaitWork(machine.streams.event(event))


class AllocationParams(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = (
        ("properties", ctypes.c_char * PROPERTIES_BYTES),
        ("accesses", _size),
        ("access_count", _size),
        ("size_bytes", _size),
        ("address", _u64),
    )


def read_allocation(machine: Machine, address: int) -> AllocationWork:
    """CUDA_MEM_ALLOC_NODE_PARAMS; the access rights of other devices are ignored."""
    params = at(AllocationParams, address)
    need(address, PROPERTIES_BYTES)
    properties = ctypes.string_at(address, PROPERTIES_BYTES)
    kind, handles, location, ordinal = struct.unpack_from("<IIII", properties)
    if handles or not params.size_bytes:
        raise DriverFailure(
            INVALID_VALUE, "memory that a graph allocates cannot be shared with other processes"
        )
    pool = machine.pools.like(kind, Location(location, ordinal))
    return machine.graphs.resources.allocation(params.size_bytes, pool, properties)


def write_allocation(work: AllocationWork, address: int) -> None:
    """CUDA_MEM_ALLOC_NODE_PARAMS."""
    params = at(AllocationParams, address)
    ctypes.memmove(address, work.properties, PROPERTIES_BYTES)
    params.accesses = params.access_count = 0
    params.size_bytes = work.memory.allocation.size_bytes
    params.address = work.memory.allocation.start


class BatchParams(ctypes.Structure):
    """CUDA_BATCH_MEM_OP_NODE_PARAMS."""

    _fields_ = (("context", _size), ("count", _u32), ("operations", _size), ("flags", _u32))


def read_batch(machine: Machine, address: int) -> BatchWork:
    """CUDA_BATCH_MEM_OP_NODE_PARAMS."""
    params = at(BatchParams, address)
    if not 0 < params.count <= _MOST_OPERATIONS:
        raise DriverFailure(
            INVALID_VALUE, f"a node has 1 to {_MOST_OPERATIONS} operations, not {params.count}"
        )
    need(params.operations, params.count * OPERATION_BYTES)
    operations = ctypes.string_at(params.operations, params.count * OPERATION_BYTES)
    return batch(machine.memory, operations, context_of(machine, params.context), params.flags)


def write_batch(node: Node, work: BatchWork, address: int) -> None:
    """Describe a batch node. Its operations stay valid until the node's parameters are set."""
    params = at(BatchParams, address)
    kept = ctypes.create_string_buffer(work.operations, len(work.operations))
    node.kept = kept
    params.context, params.count = work.context.handle, len(work.places)
    params.operations, params.flags = ctypes.addressof(kept), work.flags


def child_work(machine: Machine, graph: int) -> ChildWork:
    """A copy of the graph that a handle names."""
    return machine.graphs.child(machine.graphs.get(graph))
