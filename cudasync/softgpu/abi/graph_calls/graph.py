"""Cellar. Driver calls about whole graphs: their lives, their nodes and their edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.node_lists import get_edges, get_nodes, put_edges, put_list
from cudasync.softgpu.abi.marshalling.pointers import (
    get_text,
    get_u64,
    need,
    need_code,
    put_u32,
    put_u64,
)
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.graphs import user_objects
from cudasync.softgpu.core.graphs.dot import write_dot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.graphs.graph import Edge, Node
    from cudasync.softgpu.core.machine import Machine

_EDGES_V1: Final = "CUgraph, CUgraphNode *, CUgraphNode *, size_t *"
_EDGES: Final = "CUgraph, CUgraphNode *, CUgraphNode *, CUgraphEdgeData *, size_t *"
_NEIGHBOURS_V1: Final = "CUgraphNode, CUgraphNode *, size_t *"
_NEIGHBOURS: Final = "CUgraphNode, CUgraphNode *, CUgraphEdgeData *, size_t *"
_CHANGE_V1: Final = "CUgraph, CUgraphNode const *, CUgraphNode const *, size_t"
_CHANGE: Final = (
    "CUgraph, CUgraphNode const *, CUgraphNode const *, CUgraphEdgeData const *, size_t"
)


@export("cuGraphCreate")
def cu_graph_create(machine: Machine, graph: int, flags: int) -> None:
    need(graph)
    put_u64(graph, machine.graphs.create(flags).handle)


@export("cuGraphDestroy")
def cu_graph_destroy(machine: Machine, graph: int) -> None:
    machine.graphs.destroy(graph)


@export("cuGraphClone")
def cu_graph_clone(machine: Machine, clone: int, graph: int) -> None:
    need(clone)
    put_u64(clone, machine.graphs.clone(graph).handle)


@export("cuGraphNodeFindInClone")
def cu_graph_node_find_in_clone(machine: Machine, found: int, node: int, clone: int) -> None:
    graphs = machine.graphs
    put_u64(found, graphs.find_in_clone(graphs.node(node), graphs.get(clone)).handle)


@export("cuGraphGetId")
def cu_graph_get_id(machine: Machine, graph: int, number: int) -> None:
    put_u32(number, machine.graphs.get(graph).identity)


@export("cuGraphDebugDotPrint")
def cu_graph_debug_dot_print(machine: Machine, graph: int, path: int, flags: int) -> None:
    write_dot(machine.graphs.get(graph), get_text(path), flags)


# Nodes and edges


@export("cuGraphGetNodes")
def cu_graph_get_nodes(machine: Machine, graph: int, nodes: int, count: int) -> None:
    found = machine.graphs.get(graph).nodes
    put_list([nodes], count, [(node.handle,) for node in found])


@export("cuGraphGetRootNodes")
def cu_graph_get_root_nodes(machine: Machine, graph: int, nodes: int, count: int) -> None:
    found = machine.graphs.get(graph).nodes
    put_list([nodes], count, [(node.handle,) for node in found if not node.dependencies])


@export("cuGraphGetEdges", 10000, _EDGES_V1)
def cu_graph_get_edges_v1(
    machine: Machine, graph: int, sources: int, targets: int, count: int
) -> None:
    cu_graph_get_edges(machine, graph, sources, targets, 0, count)


@export("cuGraphGetEdges", 12030, _EDGES)
def cu_graph_get_edges(
    machine: Machine, graph: int, sources: int, targets: int, data: int, count: int
) -> None:
    found = machine.graphs.get(graph).edges()
    if data and not sources:
        raise DriverFailure(INVALID_VALUE, "edge data needs arrays of nodes as well")
    if sources:
        put_edges(data, get_u64(count), [edge for _, _, edge in found])
    rows = [(source.handle, target.handle) for source, target, _ in found]
    put_list([sources, targets], count, rows)


def _put_neighbours(found: Sequence[tuple[Node, Edge]], nodes: int, data: int, count: int) -> None:
    if data and not nodes:
        raise DriverFailure(INVALID_VALUE, "edge data needs an array of nodes as well")
    if nodes:
        put_edges(data, get_u64(count), [edge for _, edge in found])
    put_list([nodes], count, [(node.handle,) for node, _ in found])


@export("cuGraphNodeGetDependencies", 10000, _NEIGHBOURS_V1)
def cu_graph_node_get_dependencies_v1(machine: Machine, node: int, nodes: int, count: int) -> None:
    cu_graph_node_get_dependencies(machine, node, nodes, 0, count)


@export("cuGraphNodeGetDependencies", 12030, _NEIGHBOURS)
def cu_graph_node_get_dependencies(
    machine: Machine, node: int, nodes: int, data: int, count: int
) -> None:
    found = machine.graphs.node(node)
    _put_neighbours(list(found.dependencies.items()), nodes, data, count)


@export("cuGraphNodeGetDependentNodes", 10000, _NEIGHBOURS_V1)
def cu_graph_node_get_dependent_nodes_v1(
    machine: Machine, node: int, nodes: int, count: int
) -> None:
    cu_graph_node_get_dependent_nodes(machine, node, nodes, 0, count)


@export("cuGraphNodeGetDependentNodes", 12030, _NEIGHBOURS)
def cu_graph_node_get_dependent_nodes(
    machine: Machine, node: int, nodes: int, data: int, count: int
) -> None:
    found = machine.graphs.node(node)
    _put_neighbours(list(found.dependents.items()), nodes, data, count)


@export("cuGraphAddDependencies", 10000, _CHANGE_V1)
def cu_graph_add_dependencies_v1(
    machine: Machine, graph: int, sources: int, targets: int, count: int
) -> None:
    cu_graph_add_dependencies(machine, graph, sources, targets, 0, count)


@export("cuGraphAddDependencies", 12030, _CHANGE)
def cu_graph_add_dependencies(
    machine: Machine, graph: int, sources: int, targets: int, data: int, count: int
) -> None:
    found = machine.graphs.get(graph)
    before, after = get_nodes(machine, sources, count), get_nodes(machine, targets, count)
    for source, target, edge in zip(before, after, get_edges(data, count), strict=True):
        machine.graphs.connect(found, source, target, edge)


@export("cuGraphRemoveDependencies", 10000, _CHANGE_V1)
def cu_graph_remove_dependencies_v1(
    machine: Machine, graph: int, sources: int, targets: int, count: int
) -> None:
    cu_graph_remove_dependencies(machine, graph, sources, targets, 0, count)


@export("cuGraphRemoveDependencies", 12030, _CHANGE)
def cu_graph_remove_dependencies(
    machine: Machine, graph: int, sources: int, targets: int, data: int, count: int
) -> None:
    found = machine.graphs.get(graph)
    before, after = get_nodes(machine, sources, count), get_nodes(machine, targets, count)
    for source, target, edge in zip(before, after, get_edges(data, count), strict=True):
        machine.graphs.disconnect(found, source, target, edge)


@export("cuGraphDestroyNode")
def cu_graph_destroy_node(machine: Machine, node: int) -> None:
    machine.graphs.remove(machine.graphs.node(node))


@export("cuGraphNodeGetType")
def cu_graph_node_get_type(machine: Machine, node: int, kind: int) -> None:
    put_u32(kind, machine.graphs.node(node).work.kind)


@export("cuGraphNodeGetContainingGraph")
def cu_graph_node_get_containing_graph(machine: Machine, node: int, graph: int) -> None:
    put_u64(graph, machine.graphs.node(node).graph.handle)


@export("cuGraphNodeGetLocalId")
def cu_graph_node_get_local_id(machine: Machine, node: int, number: int) -> None:
    put_u32(number, machine.graphs.node(node).number)


@export("cuGraphNodeGetToolsId")
def cu_graph_node_get_tools_id(machine: Machine, node: int, number: int) -> None:
    put_u64(number, machine.graphs.node(node).handle)


# User objects


@export("cuUserObjectCreate")
def cu_user_object_create(
    machine: Machine, made: int, pointer: int, destructor: int, references: int, flags: int
) -> None:
    need(made)
    need_code(destructor)
    thing = machine.graphs.user_objects.create(pointer, destructor, references, flags)
    put_u64(made, thing.handle)


@export("cuUserObjectRetain")
def cu_user_object_retain(machine: Machine, thing: int, references: int) -> None:
    machine.graphs.user_objects.get(thing).retain(references)


@export("cuUserObjectRelease")
def cu_user_object_release(machine: Machine, thing: int, references: int) -> None:
    machine.graphs.user_objects.get(thing).release(references)


@export("cuGraphRetainUserObject")
def cu_graph_retain_user_object(
    machine: Machine, graph: int, thing: int, references: int, flags: int
) -> None:
    graphs = machine.graphs
    user_objects.retain(graphs.get(graph), graphs.user_objects.get(thing), references, flags)


@export("cuGraphReleaseUserObject")
def cu_graph_release_user_object(machine: Machine, graph: int, thing: int, references: int) -> None:
    graphs = machine.graphs
    user_objects.release(graphs.get(graph), graphs.user_objects.get(thing), references)
