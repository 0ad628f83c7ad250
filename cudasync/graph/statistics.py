"""Floor 3. A program in figures: nodes, edges, bytes that nodes touch, and an estimated time.

The estimate is by bytes, so that it exists before anything has run. A node takes a fixed time and a
time for its bytes, and each place runs one node after the other. It compares programs before and
after a pass; `exe.measure()` and `exe.estimate()` give the times of this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.graph.control import Repeat, WhileLoop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.control import Control
    from cudasync.graph.node import Node

# For a device node: its fixed time in a graph, and bytes a second; for copies between devices or
# with the host, those of a link. For a host function: the time of a call. Rough figures of a
# data-centre GPU, which only rank programs.
NODE_S = 2e-6
BYTES_PER_S = 1e12
LINK_S = 10e-6
LINK_BYTES_PER_S = 25e9
CALL_S = 1e-7
# The assumed rounds of a loop where a flag decides.
ROUNDS = 8


class Figures(NamedTuple):
    """The figures of one program."""

    nodes: int
    edges: int
    bytes: int
    estimated_s: float

    def until(self, after: Figures) -> str:
        """The change from these figures to `after`, in one line."""
        return (
            f"nodes {self.nodes} -> {after.nodes}, edges {self.edges} -> {after.edges}, "
            f"bytes {self.bytes} -> {after.bytes}, "
            f"estimated us {self.estimated_s * 1e6:.1f} -> {after.estimated_s * 1e6:.1f}"
        )


def figures(nodes: Sequence[Node]) -> Figures:
    """The figures of `nodes`, which stand behind their predecessors. Bodies of blocks count
    once."""
    edges = total = 0
    free: dict[Any, float] = {}
    ends: dict[Node, float] = {}
    for node in nodes:
        edges += len(node.before)
        touched = bytes_of(node)
        total += touched
        place = node.device or node.pool
        begin = free.get(place, 0.0)
        for other in node.before:
            begin = max(begin, ends[other])
        free[place] = ends[node] = begin + seconds_of(node, touched)
    return Figures(len(nodes), edges, total, max(ends.values(), default=0.0))


def rounds_of(control: Control) -> int:
    """How often the inside runs, or an assumption."""
    if isinstance(control, Repeat):
        return control.times
    return ROUNDS if isinstance(control, WhileLoop) else 1


def bytes_of(node: Node) -> int:
    """The bytes that it reads and writes; updated bytes count twice, "everywhere" not at all."""
    only_read, updated, written = node.hazards[0]
    known = [*only_read, *updated, *updated, *written]
    return sum(each[1] - each[0] for each in known if each.__class__ is not Everywhere)


def seconds_of(node: Node, touched: int) -> float:
    """An estimate of the seconds of the node, which touches so many bytes."""
    if node.control is not None:
        bodies = [figures(body).estimated_s for body in node.control.bodies]
        return rounds_of(node.control) * max(bodies, default=0.0)
    if node.device is None:
        return CALL_S * (len(node.steps) or 1)
    transfer = node.transfer
    source = None if transfer is None else transfer.source
    if transfer is not None and source is not None and source[1] is not transfer.target[1]:
        return LINK_S + touched / 2 / LINK_BYTES_PER_S
    return NODE_S + touched / BYTES_PER_S
