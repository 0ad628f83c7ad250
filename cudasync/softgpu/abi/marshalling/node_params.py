"""Cellar. CUgraphNodeParams: nodes of any type in one structure, a type and a union behind it.

A null context in it means the current one. `publish` writes the driver's part back, once the node
exists.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling import node_structures as structures
from cudasync.softgpu.abi.marshalling.pointers import get_u32, get_u64, need, put_u32, put_u64
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.conditional_nodes import ConditionalWork
from cudasync.softgpu.core.graphs.memory_nodes import AllocationWork, FreeWork
from cudasync.softgpu.core.graphs.memory_operation_nodes import BatchWork
from cudasync.softgpu.core.graphs.node_parameters import (
    ChildWork,
    CopyWork,
    EmptyWork,
    FillWork,
    HostWork,
    KernelWork,
    NodeType,
    RecordWork,
    WaitWork,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.graphs.graph import Graph, Node
    from cudasync.softgpu.core.graphs.node_parameters import Work
    from cudasync.softgpu.core.machine import Machine

# The place of the union, and places in it.
UNION: Final = 16
_UNION_BYTES: Final = 232
FILL_CONTEXT: Final = 40
_OWNERSHIP: Final = 8
_MOVED: Final = 1
COPY_CONTEXT, COPY_PARAMS = 8, 16


class _ConditionalParams(ctypes.Structure):
    """CUDA_CONDITIONAL_NODE_PARAMS."""

    _fields_ = (
        ("handle", ctypes.c_uint64),
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("bodies", ctypes.c_size_t),
        ("context", ctypes.c_size_t),
    )


def read_parameters(machine: Machine, address: int, graph: Graph) -> Work:
    """The work that a CUgraphNodeParams describes, for a node of `graph`."""
    kind = get_u32(address)
    union = address + UNION
    match kind:
        case NodeType.KERNEL:
            return structures.read_kernel(machine, union)
        case NodeType.MEMCPY:
            context = get_u64(union + COPY_CONTEXT)
            return structures.read_copy(machine, union + COPY_PARAMS, context)
        case NodeType.MEMSET:
            return structures.read_fill(machine, union, get_u64(union + FILL_CONTEXT))
        case NodeType.HOST:
            return structures.read_host(machine, union)
        case NodeType.GRAPH:
            if get_u32(union + _OWNERSHIP) == _MOVED:
                return machine.graphs.moved_child(machine.graphs.get(get_u64(union)))
            return structures.child_work(machine, get_u64(union))
        case NodeType.MEM_ALLOC:
            return structures.read_allocation(machine, union)
        case NodeType.MEM_FREE:
            return machine.graphs.resources.free(graph, get_u64(union))
        case NodeType.CONDITIONAL:
            params = structures.at(_ConditionalParams, union)
            where = structures.context_of(machine, params.context)
            return machine.graphs.resources.conditional(
                graph, params.handle, params.type, params.size, where
            )
        case NodeType.BATCH_MEM_OP:
            return structures.read_batch(machine, union)
        case NodeType.EMPTY:
            return EmptyWork()
        case NodeType.WAIT_EVENT:
            return structures.wait_work(machine, get_u64(union))
        case NodeType.EVENT_RECORD:
            return structures.record_work(machine, get_u64(union))
        case NodeType.EXT_SEMAS_SIGNAL | NodeType.EXT_SEMAS_WAIT:
            raise DriverFailure(NOT_SUPPORTED, "external semaphores are not supported")
    raise DriverFailure(INVALID_VALUE, f"there is no node type {kind}")


def publish(node: Node, address: int) -> None:
    """Write back the values that the driver chooses."""
    work = node.work
    if isinstance(work, AllocationWork):
        structures.write_allocation(work, address + UNION)
    elif isinstance(work, ConditionalWork):
        _write_conditional(node, work, address + UNION)


def _write_conditional(node: Node, work: ConditionalWork, address: int) -> None:
    """Describe a conditional node. The list of its bodies lives as long as the node."""
    params = structures.at(_ConditionalParams, address)
    if node.kept is None:
        handles = [body.handle for body in work.bodies]
        node.kept = (ctypes.c_uint64 * len(handles))(*handles)
    assert isinstance(node.kept, ctypes.Array)
    params.handle, params.type, params.size = work.condition.handle, work.type, len(work.bodies)
    params.bodies, params.context = ctypes.addressof(node.kept), work.where.handle


def write_parameters(node: Node, address: int) -> None:
    """Describe a node."""
    need(address)
    work = node.work
    union = address + UNION
    ctypes.memset(address, 0, UNION + _UNION_BYTES)
    put_u32(address, work.kind)
    match work:
        case KernelWork():
            structures.write_kernel(node, work, union)
        case CopyWork():
            put_u64(union + COPY_CONTEXT, work.context.handle)
            structures.write_copy(work, union + COPY_PARAMS)
        case FillWork():
            structures.write_fill(work, union)
            put_u64(union + FILL_CONTEXT, work.context.handle)
        case HostWork():
            structures.write_host(work, union)
        case ChildWork():
            put_u64(union, work.graph.handle)
        case ConditionalWork():
            _write_conditional(node, work, union)
        case AllocationWork():
            structures.write_allocation(work, union)
        case FreeWork():
            put_u64(union, work.memory.allocation.start)
        case BatchWork():
            structures.write_batch(node, work, union)
        case WaitWork() | RecordWork():
            put_u64(union, work.event.handle)
