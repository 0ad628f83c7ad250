"""Cellar. Driver calls about nodes that allocate, free, wait for and write memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.graph_calls.node import add_node, node_of
from cudasync.softgpu.abi.marshalling import node_structures as structures
from cudasync.softgpu.abi.marshalling.pointers import get_u64, need, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.graphs.memory_nodes import AllocationWork, FreeWork
from cudasync.softgpu.core.graphs.memory_operation_nodes import BatchWork

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@export("cuGraphAddMemAllocNode")
def cu_graph_add_mem_alloc_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int, parameters: int
) -> None:
    need(made)
    machine.graphs.get(graph)
    work = structures.read_allocation(machine, parameters)
    add_node(machine, made, graph, nodes, 0, count, work)
    structures.write_allocation(work, parameters)


@export("cuGraphMemAllocNodeGetParams")
def cu_graph_mem_alloc_node_get_params(machine: Machine, node: int, parameters: int) -> None:
    structures.write_allocation(node_of(machine, node, AllocationWork)[1], parameters)


@export("cuGraphAddMemFreeNode")
def cu_graph_add_mem_free_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int, address: int
) -> None:
    need(made)
    work = machine.graphs.resources.free(machine.graphs.get(graph), address)
    add_node(machine, made, graph, nodes, 0, count, work)


@export("cuGraphMemFreeNodeGetParams")
def cu_graph_mem_free_node_get_params(machine: Machine, node: int, address: int) -> None:
    put_u64(address, node_of(machine, node, FreeWork)[1].memory.allocation.start)


@export("cuDeviceGetGraphMemAttribute")
def cu_device_get_graph_mem_attribute(
    machine: Machine, device: int, attribute: int, value: int
) -> None:
    put_u64(value, machine.graphs.resources.use(device).get(attribute))


@export("cuDeviceSetGraphMemAttribute")
def cu_device_set_graph_mem_attribute(
    machine: Machine, device: int, attribute: int, value: int
) -> None:
    machine.graphs.resources.use(device).reset(attribute, get_u64(value))


@export("cuDeviceGraphMemTrim")
def cu_device_graph_mem_trim(machine: Machine, device: int) -> None:
    machine.graphs.resources.use(device).trim()


@export("cuGraphAddBatchMemOpNode")
def cu_graph_add_batch_mem_op_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int, parameters: int
) -> None:
    need(made)
    work = structures.read_batch(machine, parameters)
    add_node(machine, made, graph, nodes, 0, count, work)


@export("cuGraphBatchMemOpNodeGetParams")
def cu_graph_batch_mem_op_node_get_params(machine: Machine, node: int, parameters: int) -> None:
    structures.write_batch(*node_of(machine, node, BatchWork), parameters)


@export("cuGraphBatchMemOpNodeSetParams")
def cu_graph_batch_mem_op_node_set_params(machine: Machine, node: int, parameters: int) -> None:
    found, _ = node_of(machine, node, BatchWork)
    machine.graphs.set_work(found, structures.read_batch(machine, parameters))


@export("cuGraphExecBatchMemOpNodeSetParams")
def cu_graph_exec_batch_mem_op_node_set_params(
    machine: Machine, executable: int, node: int, parameters: int
) -> None:
    work = structures.read_batch(machine, parameters)
    machine.executables.set_work(machine.executables.get(executable), node, work)
