"""Floor 3, passes. Each takes a program and gives one that does the same, with less to do.

A program is its nodes in push order. A pass is a file with `run(nodes)`, which gives the nodes that
are left and a line of what was done. Whoever takes a pass away gets the same results.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING

from cudasync.graph.figures import figures
from cudasync.graph.hazards import ordered
from cudasync.graph.passes import (
    conditionals,
    copies,
    dead,
    edges,
    fusion,
    host,
    memory,
    placement,
    reductions,
    streams,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cudasync.graph.node import Node

# In this order: what is left out need not be fused, and edges are counted when all nodes are there.
PASSES = {
    "dead": dead.run,
    "fusion": fusion.run,
    "reductions": reductions.run,
    "placement": placement.run,
    "copies": copies.run,
    "host": host.run,
    "memory": memory.run,
    "conditionals": conditionals.run,
    "edges": edges.run,
    "streams": streams.run,
}


def optimised(
    nodes: Sequence[Node], without: Collection[str]
) -> tuple[tuple[Node, ...], list[str]]:
    """The program after all passes but those, and what each of them did, with the
    figures before and after it.

    Raises ValueError for the name of a pass that there is not.
    """
    unknown = sorted(set(without) - set(PASSES))
    if unknown:
        raise ValueError(f"there is no pass {unknown[0]!r}; there are {', '.join(PASSES)}")
    said = []
    before = figures(nodes)
    for name, run in PASSES.items():
        if name in without:
            said.append(f"{name}: left out")
            continue
        left, line = run(nodes)
        # What has as many nodes as before has its edges.
        left = ordered(left) if len(left) < len(nodes) else left
        is_same = len(left) == len(nodes) and all(map(is_, left, nodes))
        after = before if is_same else figures(left)
        said.append(f"{name}: {line}; {before.until(after)}")
        nodes, before = left, after
    return tuple(nodes), said
