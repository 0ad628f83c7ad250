"""Cellar, abi. Runtime API, Graph Management: nodes that it describes unlike the driver."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.node_params import (
    COPY_CONTEXT,
    COPY_PARAMS,
    FILL_CONTEXT,
    UNION,
)
from cudasync.softgpu.abi.marshalling.node_structures import CopyParams
from cudasync.softgpu.abi.marshalling.pointers import (
    get_i32,
    get_u64,
    need,
    put_u64,
    structure_at,
)
from cudasync.softgpu.abi.runtime.structures import (
    Copy3D,
    driver_copy,
    linear_copy,
    write_copy,
)
from cudasync.softgpu.abi.runtime.table import driver_function, runtime_function
from cudasync.softgpu.core.graphs.node_parameters import NodeType

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_NODE_BYTES: Final = 256
_KERNEL_BYTES: Final = 56
# Behind handle, kind, count and the bodies.
_CONDITION_CONTEXT: Final = 24


def _context(machine: Machine) -> int:
    return machine.context().handle


# Copies and fills


@runtime_function("cudaGraphAddMemcpyNode", "pppzp")
def cuda_graph_add_memcpy_node(machine: Machine, *arguments: int) -> int | None:
    copy = driver_copy(machine, structure_at(Copy3D, arguments[4]))
    call = driver_function("cuGraphAddMemcpyNode")
    return call(machine, *arguments[:4], ctypes.addressof(copy), _context(machine))


@runtime_function("cudaGraphAddMemcpyNode1D", "pppzppzi")
def cuda_graph_add_memcpy_node_1d(machine: Machine, *arguments: int) -> int | None:
    copy = linear_copy(*arguments[4:7])
    call = driver_function("cuGraphAddMemcpyNode")
    return call(machine, *arguments[:4], ctypes.addressof(copy), _context(machine))


@runtime_function("cudaGraphMemcpyNodeGetParams", "pp")
def cuda_graph_memcpy_node_get_params(machine: Machine, node: int, parameters: int) -> int | None:
    copy = CopyParams()
    found = structure_at(Copy3D, parameters)
    code = driver_function("cuGraphMemcpyNodeGetParams")(machine, node, ctypes.addressof(copy))
    write_copy(machine, copy, found)
    return code


@runtime_function("cudaGraphMemcpyNodeSetParams", "pp")
def cuda_graph_memcpy_node_set_params(machine: Machine, node: int, parameters: int) -> int | None:
    copy = driver_copy(machine, structure_at(Copy3D, parameters))
    return driver_function("cuGraphMemcpyNodeSetParams")(machine, node, ctypes.addressof(copy))


@runtime_function("cudaGraphMemcpyNodeSetParams1D", "pppzi")
def cuda_graph_memcpy_node_set_params_1d(
    machine: Machine, node: int, *arguments: int
) -> int | None:
    copy = linear_copy(*arguments[:3])
    return driver_function("cuGraphMemcpyNodeSetParams")(machine, node, ctypes.addressof(copy))


def _set_executable(machine: Machine, executable: int, node: int, copy: CopyParams) -> int | None:
    call = driver_function("cuGraphExecMemcpyNodeSetParams")
    return call(machine, executable, node, ctypes.addressof(copy), _context(machine))


@runtime_function("cudaGraphExecMemcpyNodeSetParams", "ppp")
def cuda_graph_exec_memcpy_node_set_params(
    machine: Machine, executable: int, node: int, parameters: int
) -> int | None:
    copy = driver_copy(machine, structure_at(Copy3D, parameters))
    return _set_executable(machine, executable, node, copy)


@runtime_function("cudaGraphExecMemcpyNodeSetParams1D", "ppppzi")
def cuda_graph_exec_memcpy_node_set_params_1d(
    machine: Machine, executable: int, node: int, *arguments: int
) -> int | None:
    return _set_executable(machine, executable, node, linear_copy(*arguments[:3]))


@runtime_function("cudaGraphAddMemsetNode", "pppzp")
def cuda_graph_add_memset_node(machine: Machine, *arguments: int) -> int | None:
    return driver_function("cuGraphAddMemsetNode")(machine, *arguments, _context(machine))


@runtime_function("cudaGraphExecMemsetNodeSetParams", "ppp")
def cuda_graph_exec_memset_node_set_params(machine: Machine, *arguments: int) -> int | None:
    call = driver_function("cuGraphExecMemsetNodeSetParams")
    return call(machine, *arguments, _context(machine))


# Conditions


@runtime_function("cudaGraphConditionalHandleCreate", "ppuu")
def cuda_graph_conditional_handle_create(
    machine: Machine, handle: int, graph: int, initial: int, flags: int
) -> int | None:
    call = driver_function("cuGraphConditionalHandleCreate")
    return call(machine, handle, graph, _context(machine), initial, flags)


# Nodes of any type


@runtime_function("cudaGraphAddNode", "ppppzp")
def cuda_graph_add_node(machine: Machine, *arguments: int) -> int | None:
    parameters = arguments[5]
    need(parameters, _NODE_BYTES)
    copy = ctypes.create_string_buffer(ctypes.string_at(parameters, _NODE_BYTES), _NODE_BYTES)
    at = ctypes.addressof(copy)
    kind = get_i32(at)
    _as_the_driver(machine, kind, at + UNION)
    code = driver_function("cuGraphAddNode", 12030)(machine, *arguments[:5], at)
    # The driver says where the bodies or the memory are.
    if kind == NodeType.CONDITIONAL:
        ctypes.memmove(parameters, at, UNION + _CONDITION_CONTEXT)
    elif kind == NodeType.MEM_ALLOC:
        ctypes.memmove(parameters, at, _NODE_BYTES)
    return code


def _as_the_driver(machine: Machine, kind: int, union: int) -> None:
    """Change what the driver describes unlike the runtime.

    The driver wants a context, which is null or not there in the runtime's structures; their
    unused bytes are zero.
    """
    match kind:
        case NodeType.KERNEL:
            # The driver has a second kind of handle before the context.
            put_u64(union + _KERNEL_BYTES + 8, get_u64(union + _KERNEL_BYTES))
            put_u64(union + _KERNEL_BYTES, 0)
        case NodeType.MEMSET:
            _set_context(machine, union + FILL_CONTEXT)
        case NodeType.MEMCPY:
            copy = driver_copy(machine, structure_at(Copy3D, union + COPY_PARAMS))
            _set_context(machine, union + COPY_CONTEXT)
            ctypes.memmove(union + COPY_PARAMS, ctypes.addressof(copy), ctypes.sizeof(copy))
        case NodeType.CONDITIONAL:
            _set_context(machine, union + _CONDITION_CONTEXT)


def _set_context(machine: Machine, at: int) -> None:
    put_u64(at, get_u64(at) or _context(machine))
