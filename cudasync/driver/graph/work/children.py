"""Floor 1, graphs. Child nodes: a graph within a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver.graph.work.work import Work

if TYPE_CHECKING:
    from cudasync.driver.device import Device
    from cudasync.driver.graph.graph import Graph


class Child(Work):
    """A copy of another graph in its present state. (cuGraphAddChildGraphNode)"""

    kind = "graph"
    add = "cuGraphAddChildGraphNode"
    change = "cuGraphExecChildGraphNodeSetParams"

    def __init__(self, graph: Graph) -> None:
        self._raw = graph.whole()
        self._kept = graph.kept()

    def params(self, device: Device) -> tuple[Any, ...]:
        return (self._raw,)

    @property
    def keeps(self) -> object:
        return self._kept
