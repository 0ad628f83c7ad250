"""Cellar, abi. Runtime functions that take a kernel, as compiled programs call them.

A compiled program names a kernel by the address of its host function; the driver wants a handle.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.node_params import UNION
from cudasync.softgpu.abi.marshalling.pointers import get_i32, need
from cudasync.softgpu.abi.native.registration import REGISTRATIONS
from cudasync.softgpu.abi.runtime.chapters import entries
from cudasync.softgpu.abi.runtime.table import prepared
from cudasync.softgpu.core.graphs.node_parameters import NodeType

if TYPE_CHECKING:
    from cudasync.softgpu.abi.stub import registry
    from cudasync.softgpu.core.machine import Machine

# By name: the place of the argument that is the kernel.
_KERNELS: Final = {
    "cudaFuncGetAttributes": 1,
    "cudaFuncGetName": 1,
    "cudaFuncGetParamCount": 0,
    "cudaFuncGetParamInfo": 0,
    "cudaFuncSetAttribute": 0,
    "cudaFuncSetCacheConfig": 0,
    "cudaFuncSetSharedMemConfig": 0,
    "cudaOccupancyAvailableDynamicSMemPerBlock": 1,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": 1,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 1,
}
# By name: the argument that points to a cudaKernelNodeParams, whose first word is the kernel.
_NODES: Final = {
    "cudaGraphAddKernelNode": 4,
    "cudaGraphKernelNodeSetParams": 1,
    "cudaGraphExecKernelNodeSetParams": 2,
}
_NODE_BYTES: Final = 56
# Its last argument points to a cudaGraphNodeParams: a type, and such a structure in a union.
_ANY_NODE: Final = "cudaGraphAddNode"
_ANY_NODE_BYTES: Final = 256


def entry_of(name: str) -> registry.Entry | None:
    """The table's function as a compiled program calls it; None if the table has none."""
    entry = entries().get(name)
    if entry is None:
        return None
    call = entry.call
    if (kernel_at := _KERNELS.get(name)) is not None:

        def by_host(machine: Machine, *arguments: int) -> int | None:
            given = list(arguments)
            given[kernel_at] = _function(machine, given[kernel_at])
            return call(machine, *given)

        return replace(entry, call=prepared(by_host))
    if (node_at := _NODES.get(name)) is not None:

        def by_node(machine: Machine, *arguments: int) -> int | None:
            need(arguments[node_at], _NODE_BYTES)
            node = ctypes.create_string_buffer(
                ctypes.string_at(arguments[node_at], _NODE_BYTES), _NODE_BYTES
            )
            kernel = ctypes.c_uint64.from_buffer(node)
            kernel.value = _function(machine, kernel.value)
            given = list(arguments)
            given[node_at] = ctypes.addressof(node)
            return call(machine, *given)

        return replace(entry, call=prepared(by_node))
    if name == _ANY_NODE:

        def by_any_node(machine: Machine, *arguments: int) -> int | None:
            *given, at = arguments
            need(at, _ANY_NODE_BYTES)
            if get_i32(at) != NodeType.KERNEL:
                return call(machine, *arguments)
            node = ctypes.create_string_buffer(
                ctypes.string_at(at, _ANY_NODE_BYTES), _ANY_NODE_BYTES
            )
            kernel = ctypes.c_uint64.from_buffer(node, UNION)
            kernel.value = _function(machine, kernel.value)
            return call(machine, *given, ctypes.addressof(node))

        return replace(entry, call=prepared(by_any_node))
    return entry


def _function(machine: Machine, host: int) -> int:
    """The function of the current context for a host address or a handle."""
    return machine.modules.function(REGISTRATIONS.kernel(machine, host)).handle
