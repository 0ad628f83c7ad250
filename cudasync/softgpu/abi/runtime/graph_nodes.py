"""Cellar, abi. Runtime API, Graph Management: nodes that it describes unlike the driver."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.node_structures import CopyParams
from cudasync.softgpu.abi.marshalling.pointers import get_i32, need, structure_at
from cudasync.softgpu.abi.runtime.structures import (
    Copy3D,
    driver_copy,
    linear_copy,
    write_copy,
)
from cudasync.softgpu.abi.runtime.table import driver_function, runtime_function
from cudasync.softgpu.core.driver_types.result_codes import NOT_SUPPORTED, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_CONDITIONAL: Final = 13
_NODE_BYTES: Final = 256
# In the union after 16 bytes: handle, kind, count, the bodies; then the context.
_CONTEXT_AT: Final = 16 + 24


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


@runtime_function("cudaGraphAddNode", "ppppzp")
def cuda_graph_add_node(machine: Machine, *arguments: int) -> int | None:
    parameters = arguments[5]
    need(parameters, _NODE_BYTES)
    kind = get_i32(parameters)
    if kind != _CONDITIONAL:
        raise DriverFailure(
            NOT_SUPPORTED,
            f"cudaGraphAddNode is supported for conditional nodes only, not for type {kind}: call "
            "the function for that type",
        )
    # The runtime has no contexts; the driver wants the context of the handle.
    copy = ctypes.create_string_buffer(ctypes.string_at(parameters, _NODE_BYTES), _NODE_BYTES)
    at = ctypes.addressof(copy)
    ctypes.c_uint64.from_address(at + _CONTEXT_AT).value = ctypes.c_uint64.from_address(
        at + _CONTEXT_AT
    ).value or _context(machine)
    code = driver_function("cuGraphAddNode", 12030)(machine, *arguments[:5], at)
    # The copy says where the bodies are.
    ctypes.memmove(parameters, at, _CONTEXT_AT)
    return code
