"""Floor 3, passes. Each pass turns a program into an equivalent one with less to do.

A program is its nodes in push order. A pass is a file with `run(nodes)`, which returns the
remaining nodes and a line for the report. Leaving a pass out changes no result.

The body of a block is a program, too. Most passes are run on each body, the innermost first, and
then on the program around it (`bodies`). Some get the memory that is `live` at the end.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING

from cudasync.graph.passes import (
    bodies,
    conditionals,
    copies,
    dead_results,
    fusion,
    host,
    memory,
    placement,
    reductions,
    streams,
    transitive_reduction,
    unroll,
)
from cudasync.graph.statistics import figures

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cudasync.graph.node import Node

# In this order: nodes that `dead` drops need no fusion; rounds that are written out share the
# memory of their temporaries; edges are reduced last.
PASSES = {
    "dead": dead_results.run,
    "fusion": fusion.run,
    "reductions": reductions.run,
    "placement": placement.run,
    "copies": copies.run,
    "memory": memory.run,
    "unroll": unroll.run,
    "host": host.run,
    "conditionals": conditionals.run,
    "edges": transitive_reduction.run,
    "streams": streams.run,
}


def optimised(
    nodes: Sequence[Node], without: Collection[str]
) -> tuple[tuple[Node, ...], list[str]]:
    """The program after all passes except those; a line of each, with the figures before and after
    it; a line of each block, with those of its nodes before and after all passes.

    Raises ValueError for an unknown pass.
    """
    unknown = sorted(set(without) - set(PASSES))
    if unknown:
        raise ValueError(f"there is no pass {unknown[0]!r}: choose from {', '.join(PASSES)}")
    said = []
    nodes, blocks = bodies.recorded(nodes)
    before = figures(nodes)
    for name, run in PASSES.items():
        if name in without:
            said.append(f"{name}: left out")
            continue
        left, line = bodies.through(name, run, nodes) if blocks else bodies.alone(run, nodes)
        is_same = len(left) == len(nodes) and all(map(is_, left, nodes))
        after = before if is_same else figures(left)
        said.append(f"{name}: {line}; {before.until(after)}")
        nodes, before = left, after
    return tuple(nodes), [*said, *bodies.said_of(blocks, nodes)]
