"""Cellar. Driver calls that add nodes to a graph, and that get and set their work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from cudasync.softgpu.abi.marshalling import node_structures as structures
from cudasync.softgpu.abi.marshalling.node_lists import get_dependencies
from cudasync.softgpu.abi.marshalling.node_params import publish, read_parameters, write_parameters
from cudasync.softgpu.abi.marshalling.pointers import need, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.graphs.node_parameters import (
    ChildWork,
    CopyWork,
    EmptyWork,
    FillWork,
    HostWork,
    KernelWork,
    RecordWork,
    WaitWork,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.graphs.graph import Node
    from cudasync.softgpu.core.graphs.node_parameters import Work
    from cudasync.softgpu.core.machine import Machine

_ADD_V1: Final = "CUgraphNode *, CUgraph, CUgraphNode const *, size_t, CUgraphNodeParams *"
_ADD: Final = (
    "CUgraphNode *, CUgraph, CUgraphNode const *, CUgraphEdgeData const *, size_t, "
    "CUgraphNodeParams *"
)
_KERNEL_GET: Final = "CUgraphNode, CUDA_KERNEL_NODE_PARAMS *"

_W = TypeVar("_W", bound="Work")


def node_of(machine: Machine, handle: int, kind: type[_W]) -> tuple[Node, _W]:
    """A node and its work; INVALID_VALUE if it is of another type."""
    node = machine.graphs.node(handle)
    if not isinstance(node.work, kind):
        raise DriverFailure(INVALID_VALUE, f"the node is a {node.work.kind.name} node")
    return node, node.work


def add_node(
    machine: Machine, made: int, graph: int, nodes: int, edges: int, count: int, work: Work
) -> Node:
    target = machine.graphs.get(graph)
    before = get_dependencies(machine, target, nodes, edges, count)
    node = machine.graphs.add(target, work, before)
    put_u64(made, node.handle)
    return node


# Nodes of any type


@export("cuGraphAddNode", 12020, _ADD_V1)
def cu_graph_add_node_v1(
    machine: Machine, made: int, graph: int, nodes: int, count: int, parameters: int
) -> None:
    cu_graph_add_node(machine, made, graph, nodes, 0, count, parameters)


@export("cuGraphAddNode", 12030, _ADD)
@export("cuGraphAddNode", 13040, _ADD)
def cu_graph_add_node(
    machine: Machine, made: int, graph: int, nodes: int, edges: int, count: int, parameters: int
) -> None:
    need(made)
    target = machine.graphs.get(graph)
    work = read_parameters(machine, parameters, target)
    publish(add_node(machine, made, graph, nodes, edges, count, work), parameters)


@export("cuGraphNodeGetParams")
def cu_graph_node_get_params(machine: Machine, node: int, parameters: int) -> None:
    write_parameters(machine.graphs.node(node), parameters)


@export("cuGraphNodeSetParams")
def cu_graph_node_set_params(machine: Machine, node: int, parameters: int) -> None:
    found = machine.graphs.node(node)
    machine.graphs.check_settable(found)
    machine.graphs.set_work(found, read_parameters(machine, parameters, found.graph))


@export("cuGraphConditionalHandleCreate")
def cu_graph_conditional_handle_create(
    machine: Machine, handle: int, graph: int, context: int, initial: int, flags: int
) -> None:
    need(handle)
    found = machine.graphs.get(graph)
    where = structures.context_of(machine, context)
    put_u64(handle, machine.graphs.resources.create_condition(found, where, initial, flags))


# Kernels


@export("cuGraphAddKernelNode")
def cu_graph_add_kernel_node_v1(
    machine: Machine, made: int, graph: int, nodes: int, count: int, parameters: int
) -> None:
    need(made)
    work = structures.read_kernel(machine, parameters, is_first=True)
    add_node(machine, made, graph, nodes, 0, count, work)


@export(
    "cuGraphAddKernelNode",
    12000,
    "CUgraphNode *, CUgraph, CUgraphNode const *, size_t, CUDA_KERNEL_NODE_PARAMS const *",
)
def cu_graph_add_kernel_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int, parameters: int
) -> None:
    need(made)
    add_node(machine, made, graph, nodes, 0, count, structures.read_kernel(machine, parameters))


@export("cuGraphKernelNodeGetParams")
def cu_graph_kernel_node_get_params_v1(machine: Machine, node: int, parameters: int) -> None:
    structures.write_kernel(*node_of(machine, node, KernelWork), parameters, is_first=True)


@export("cuGraphKernelNodeGetParams", 12000, _KERNEL_GET)
def cu_graph_kernel_node_get_params(machine: Machine, node: int, parameters: int) -> None:
    structures.write_kernel(*node_of(machine, node, KernelWork), parameters)


@export("cuGraphKernelNodeSetParams")
def cu_graph_kernel_node_set_params_v1(machine: Machine, node: int, parameters: int) -> None:
    found, _ = node_of(machine, node, KernelWork)
    machine.graphs.set_work(found, structures.read_kernel(machine, parameters, is_first=True))


@export("cuGraphKernelNodeSetParams", 12000, "CUgraphNode, CUDA_KERNEL_NODE_PARAMS const *")
def cu_graph_kernel_node_set_params(machine: Machine, node: int, parameters: int) -> None:
    found, _ = node_of(machine, node, KernelWork)
    machine.graphs.set_work(found, structures.read_kernel(machine, parameters))


# Copies and memsets


@export("cuGraphAddMemcpyNode")
def cu_graph_add_memcpy_node(
    machine: Machine,
    made: int,
    graph: int,
    nodes: int,
    count: int,
    parameters: int,
    context: int,
) -> None:
    need(made)
    work = structures.read_copy(machine, parameters, context)
    add_node(machine, made, graph, nodes, 0, count, work)


@export("cuGraphMemcpyNodeGetParams")
def cu_graph_memcpy_node_get_params(machine: Machine, node: int, parameters: int) -> None:
    structures.write_copy(node_of(machine, node, CopyWork)[1], parameters)


@export("cuGraphMemcpyNodeSetParams")
def cu_graph_memcpy_node_set_params(machine: Machine, node: int, parameters: int) -> None:
    found, work = node_of(machine, node, CopyWork)
    read = structures.read_copy(machine, parameters, work.context.handle)
    machine.graphs.set_work(found, read)


@export("cuGraphAddMemsetNode")
def cu_graph_add_memset_node(
    machine: Machine,
    made: int,
    graph: int,
    nodes: int,
    count: int,
    parameters: int,
    context: int,
) -> None:
    need(made)
    work = structures.read_fill(machine, parameters, context)
    add_node(machine, made, graph, nodes, 0, count, work)


@export("cuGraphMemsetNodeGetParams")
def cu_graph_memset_node_get_params(machine: Machine, node: int, parameters: int) -> None:
    structures.write_fill(node_of(machine, node, FillWork)[1], parameters)


@export("cuGraphMemsetNodeSetParams")
def cu_graph_memset_node_set_params(machine: Machine, node: int, parameters: int) -> None:
    found, work = node_of(machine, node, FillWork)
    read = structures.read_fill(machine, parameters, work.context.handle)
    machine.graphs.set_work(found, read)


# Host functions, events, child graphs, empty nodes


@export("cuGraphAddHostNode")
def cu_graph_add_host_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int, parameters: int
) -> None:
    need(made)
    add_node(machine, made, graph, nodes, 0, count, structures.read_host(machine, parameters))


@export("cuGraphHostNodeGetParams")
def cu_graph_host_node_get_params(machine: Machine, node: int, parameters: int) -> None:
    structures.write_host(node_of(machine, node, HostWork)[1], parameters)


@export("cuGraphHostNodeSetParams")
def cu_graph_host_node_set_params(machine: Machine, node: int, parameters: int) -> None:
    found, _ = node_of(machine, node, HostWork)
    machine.graphs.set_work(found, structures.read_host(machine, parameters))


@export("cuGraphAddEventRecordNode")
def cu_graph_add_event_record_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int, event: int
) -> None:
    need(made)
    add_node(machine, made, graph, nodes, 0, count, structures.record_work(machine, event))


@export("cuGraphEventRecordNodeGetEvent")
def cu_graph_event_record_node_get_event(machine: Machine, node: int, event: int) -> None:
    put_u64(event, node_of(machine, node, RecordWork)[1].event.handle)


@export("cuGraphEventRecordNodeSetEvent")
def cu_graph_event_record_node_set_event(machine: Machine, node: int, event: int) -> None:
    found, _ = node_of(machine, node, RecordWork)
    machine.graphs.set_work(found, structures.record_work(machine, event))


@export("cuGraphAddEventWaitNode")
def cu_graph_add_event_wait_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int, event: int
) -> None:
    need(made)
    add_node(machine, made, graph, nodes, 0, count, structures.wait_work(machine, event))


@export("cuGraphEventWaitNodeGetEvent")
def cu_graph_event_wait_node_get_event(machine: Machine, node: int, event: int) -> None:
    put_u64(event, node_of(machine, node, WaitWork)[1].event.handle)


@export("cuGraphEventWaitNodeSetEvent")
def cu_graph_event_wait_node_set_event(machine: Machine, node: int, event: int) -> None:
    found, _ = node_of(machine, node, WaitWork)
    machine.graphs.set_work(found, structures.wait_work(machine, event))


@export("cuGraphAddChildGraphNode")
def cu_graph_add_child_graph_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int, child: int
) -> None:
    need(made)
    add_node(machine, made, graph, nodes, 0, count, structures.child_work(machine, child))


@export("cuGraphChildGraphNodeGetGraph")
def cu_graph_child_graph_node_get_graph(machine: Machine, node: int, graph: int) -> None:
    put_u64(graph, node_of(machine, node, ChildWork)[1].graph.handle)


@export("cuGraphAddEmptyNode")
def cu_graph_add_empty_node(
    machine: Machine, made: int, graph: int, nodes: int, count: int
) -> None:
    need(made)
    add_node(machine, made, graph, nodes, 0, count, EmptyWork())
