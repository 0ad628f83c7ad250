"""Floor 1, graphs. Edges of graphs, for all releases of the bindings.

From CUDA 13 on, an edge has data, here always a plain edge's; before, calls with data have separate
names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.result import check

if TYPE_CHECKING:
    from collections.abc import Sequence

_HAS_TWO = hasattr(driver, "cuGraphAddDependencies_v2")


def _call(name: str) -> Any:
    return getattr(driver, f"{name}_v2" if _HAS_TWO else name)


def add(graph: Any, sources: Sequence[Any], targets: Sequence[Any]) -> None:
    """Add an edge from each source to the target at the same index. (cuGraphAddDependencies)"""
    _change("cuGraphAddDependencies", graph, sources, targets)


def remove(graph: Any, sources: Sequence[Any], targets: Sequence[Any]) -> None:
    """Remove these edges. (cuGraphRemoveDependencies)"""
    _change("cuGraphRemoveDependencies", graph, sources, targets)


def all_of(graph: Any) -> list[tuple[Any, Any]]:
    """All edges, each from the first node to the later one. (cuGraphGetEdges)"""
    count = check(_call("cuGraphGetEdges")(graph, 0), "cuGraphGetEdges")[-1]
    if not count:
        return []
    sources, targets, *_ = check(_call("cuGraphGetEdges")(graph, count), "cuGraphGetEdges")
    return list(zip(sources[:count], targets[:count], strict=True))


def before(node: Any) -> list[Any]:
    """The direct predecessors of a node. (cuGraphNodeGetDependencies)"""
    return _beside("cuGraphNodeGetDependencies", node)


def behind(node: Any) -> list[Any]:
    """The direct successors of a node. (cuGraphNodeGetDependentNodes)"""
    return _beside("cuGraphNodeGetDependentNodes", node)


def plain(count: int) -> list[Any]:
    """Data of so many plain edges: some bindings do not take None instead."""
    return [driver.CUgraphEdgeData() for _ in range(count)]


def add_node(graph: Any, before: Sequence[Any], count: int, params: Any) -> Any:
    """cuGraphAddNode, with plain edges."""
    return _call("cuGraphAddNode")(graph, before, plain(count), count, params)


def _change(name: str, graph: Any, sources: Sequence[Any], targets: Sequence[Any]) -> None:
    count = len(sources)
    check(_call(name)(graph, list(sources), list(targets), plain(count), count), name)


def _beside(name: str, node: Any) -> list[Any]:
    count = check(_call(name)(node, 0), name)[-1]
    if not count:
        return []
    nodes, *_ = check(_call(name)(node, count), name)
    found: list[Any] = nodes[:count]
    return found
