"""Floor 3. The nodes of a segment on a device, as one graph of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver import Stream
from cudasync.driver.graph import Graph
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import Device
    from cudasync.driver.graph import GraphExec, GraphNode
    from cudasync.graph.node import Node


def device_graph(
    nodes: Sequence[Node], edges: Sequence[Sequence[Node]], device: Device
) -> tuple[GraphExec, tuple[int, ...]]:
    """An executable of `nodes`, each behind those of them that `edges` names, and no others.

    A launch is a node by itself. Any other function is called once, with a stream that is captured;
    what it enqueues is what each launch of the graph does. Raises what it raises.
    Besides, for each node, how many nodes the driver's graph has up to and with it.
    """
    graph = Graph(device)
    stream = Stream(device)
    # Of each node, what comes last of it.
    ends: dict[Node, Sequence[GraphNode]] = {}
    counts: list[int] = []
    try:
        for node, before in zip(nodes, edges, strict=True):
            after = [each for other in before for each in ends[other]]
            if node.launch is not None:
                ends[node] = (graph.add_kernel(node.launch, after),)
                counts.append(counts[-1] + 1 if counts else 1)
                continue
            try:
                # A function that enqueues nothing leaves what it comes after.
                ends[node] = graph.add_captured(node.fn, stream, after)
            except CudasyncError as error:
                error.add_note(f"node {node.index} ({node.name}), recorded at {node.push_site}")
                raise
            counts.append(len(graph))
        return graph.instantiate(), tuple(counts)
    finally:
        stream.close()
        graph.close()
