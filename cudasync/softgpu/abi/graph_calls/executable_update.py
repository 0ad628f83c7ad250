"""Cellar. Driver calls that change the work of executable graphs, and kernel node attributes."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.graph_calls.node import node_of
from cudasync.softgpu.abi.marshalling import node_structures as structures
from cudasync.softgpu.abi.marshalling.node_params import read_parameters
from cudasync.softgpu.abi.marshalling.pointers import (
    get_i32,
    get_u32,
    need,
    offer_u32,
    offer_u64,
    put_i32,
    put_u32,
)
from cudasync.softgpu.abi.stub.registry import export, refuses_values
from cudasync.softgpu.core.driver_types.result_codes import (
    GRAPH_EXEC_UPDATE_FAILURE,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.graph_update import UpdateRefused
from cudasync.softgpu.core.graphs.node_parameters import ChildWork, KernelWork

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_UPDATE: Final = "CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *"
_UPDATE_V1: Final = "CUgraphExec, CUgraph, CUgraphNode *, CUgraphExecUpdateResult *"
_KERNEL: Final = "CUgraphExec, CUgraphNode, CUDA_KERNEL_NODE_PARAMS const *"


class _UpdateInfo(ctypes.Structure):
    """CUgraphExecUpdateResultInfo."""

    _fields_ = (
        ("result", ctypes.c_uint32),
        ("node", ctypes.c_size_t),
        ("source", ctypes.c_size_t),
    )


@export("cuGraphExecUpdate", 12000, _UPDATE)
def cu_graph_exec_update(machine: Machine, executable: int, graph: int, info: int) -> None:
    told = structures.at(_UpdateInfo, info)
    told.result, told.node, told.source = 1, 0, 0
    graphs = machine.graphs
    try:
        machine.executables.update(machine.executables.get(executable), graphs.get(graph))
    except UpdateRefused as refusal:
        told.result = refusal.result
        told.node = refusal.node.handle if refusal.node is not None else 0
        told.source = refusal.source.handle if refusal.source is not None else 0
        raise DriverFailure(GRAPH_EXEC_UPDATE_FAILURE, str(refusal)) from refusal
    told.result = 0


@export("cuGraphExecUpdate", 10020, _UPDATE_V1)
def cu_graph_exec_update_v1(
    machine: Machine, executable: int, graph: int, node: int, result: int
) -> None:
    told = _UpdateInfo()
    try:
        cu_graph_exec_update(machine, executable, graph, ctypes.addressof(told))
    finally:
        offer_u64(node, told.node)
        offer_u32(result, told.result)


@export("cuGraphExecKernelNodeSetParams")
@refuses_values
def cu_graph_exec_kernel_node_set_params_v1(
    machine: Machine, executable: int, node: int, parameters: int
) -> None:
    work = structures.read_kernel(machine, parameters, is_first=True)
    machine.executables.set_work(machine.executables.get(executable), node, work)


@export("cuGraphExecKernelNodeSetParams", 12000, _KERNEL)
@refuses_values
def cu_graph_exec_kernel_node_set_params(
    machine: Machine, executable: int, node: int, parameters: int
) -> None:
    work = structures.read_kernel(machine, parameters)
    machine.executables.set_work(machine.executables.get(executable), node, work)


@export("cuGraphExecMemcpyNodeSetParams")
def cu_graph_exec_memcpy_node_set_params(
    machine: Machine, executable: int, node: int, parameters: int, context: int
) -> None:
    work = structures.read_copy(machine, parameters, context)
    machine.executables.set_work(machine.executables.get(executable), node, work)


@export("cuGraphExecMemsetNodeSetParams")
def cu_graph_exec_memset_node_set_params(
    machine: Machine, executable: int, node: int, parameters: int, context: int
) -> None:
    work = structures.read_fill(machine, parameters, context)
    machine.executables.set_work(machine.executables.get(executable), node, work)


@export("cuGraphExecHostNodeSetParams")
def cu_graph_exec_host_node_set_params(
    machine: Machine, executable: int, node: int, parameters: int
) -> None:
    work = structures.read_host(machine, parameters)
    machine.executables.set_work(machine.executables.get(executable), node, work)


@export("cuGraphExecEventRecordNodeSetEvent")
@refuses_values
def cu_graph_exec_event_record_node_set_event(
    machine: Machine, executable: int, node: int, event: int
) -> None:
    work = structures.record_work(machine, event)
    machine.executables.set_work(machine.executables.get(executable), node, work)


@export("cuGraphExecEventWaitNodeSetEvent")
@refuses_values
def cu_graph_exec_event_wait_node_set_event(
    machine: Machine, executable: int, node: int, event: int
) -> None:
    work = structures.wait_work(machine, event)
    machine.executables.set_work(machine.executables.get(executable), node, work)


@export("cuGraphExecChildGraphNodeSetParams")
def cu_graph_exec_child_graph_node_set_params(
    machine: Machine, executable: int, node: int, graph: int
) -> None:
    graphs = machine.graphs
    machine.executables.set_graph(machine.executables.get(executable), node, graphs.get(graph))


@export("cuGraphExecNodeSetParams")
def cu_graph_exec_node_set_params(
    machine: Machine, executable: int, node: int, parameters: int
) -> None:
    graphs = machine.graphs
    found = machine.executables.get(executable)
    own = machine.executables.own_node(found, node)
    graphs.check_settable(own)
    work = read_parameters(machine, parameters, own.graph)
    if isinstance(work, ChildWork):
        machine.executables.set_graph(found, node, work.graph)
    else:
        machine.executables.set_work(found, node, work)


@export("cuGraphNodeSetEnabled")
def cu_graph_node_set_enabled(machine: Machine, executable: int, node: int, value: int) -> None:
    machine.executables.enable(machine.executables.get(executable), node, bool(value))


@export("cuGraphNodeGetEnabled")
def cu_graph_node_get_enabled(machine: Machine, executable: int, node: int, value: int) -> None:
    put_u32(value, machine.executables.enable(machine.executables.get(executable), node, None))


# Attributes of kernel nodes: hints are accepted and ignored.

_COOPERATIVE, _CLUSTER, _PRIORITY = 2, 4, 8
_ATTRIBUTES: Final = range(1, 20)
_VALUE_BYTES: Final = 64


def _check(attribute: int, value: int) -> None:
    need(value)
    if attribute not in _ATTRIBUTES:
        raise DriverFailure(INVALID_VALUE, f"there is no kernel node attribute {attribute}")


@export("cuGraphKernelNodeGetAttribute")
def cu_graph_kernel_node_get_attribute(
    machine: Machine, node: int, attribute: int, value: int
) -> None:
    work = node_of(machine, node, KernelWork)[1]
    _check(attribute, value)
    ctypes.memset(value, 0, _VALUE_BYTES)
    if attribute == _COOPERATIVE:
        put_i32(value, work.is_cooperative)
    elif attribute == _PRIORITY:
        put_i32(value, work.priority)


@export("cuGraphKernelNodeSetAttribute")
def cu_graph_kernel_node_set_attribute(
    machine: Machine, node: int, attribute: int, value: int
) -> None:
    found, work = node_of(machine, node, KernelWork)
    _check(attribute, value)
    if attribute == _COOPERATIVE:
        found.work = replace(work, is_cooperative=bool(get_i32(value)))
    elif attribute == _PRIORITY:
        found.work = replace(work, priority=get_i32(value))
    elif attribute == _CLUSTER and [get_u32(value + 4 * i) for i in range(3)] != [1, 1, 1]:
        raise DriverFailure(INVALID_VALUE, "thread block clusters are not supported")


@export("cuGraphKernelNodeCopyAttributes")
def cu_graph_kernel_node_copy_attributes(machine: Machine, target: int, source: int) -> None:
    found, work = node_of(machine, target, KernelWork)
    other = node_of(machine, source, KernelWork)[1]
    found.work = replace(work, is_cooperative=other.is_cooperative, priority=other.priority)
