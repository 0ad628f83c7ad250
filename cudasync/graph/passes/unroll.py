"""Floor 3, passes. Rounds of a `repeat` are written out, so that few rounds cost nothing.

A round costs a device a kernel that counts. It costs the engine an op and a wait for each part of
the body. So a `repeat` of few nodes becomes the nodes of all its rounds. If there are many rounds,
and a device does all their work, several rounds become one.

A function that the driver captures is called once, however often a launch does its work. So a body
with such a function stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.graph.control import Repeat
from cudasync.graph.hazards import ordered
from cudasync.graph.placement.memory_partition import everything
from cudasync.graph.statistics import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node

# A `repeat` of up to this many nodes, in all rounds together, is written out.
MOST = 128
# With more, rounds of a device are joined up to this many nodes.
MOST_JOINED = 32


def run(nodes: Sequence[Node]) -> tuple[Sequence[Node], str]:
    """Write rounds out, the innermost first."""
    if not any(node.control is not None for node in nodes):
        return nodes, "there are no blocks"
    count = [0, 0]
    left = _unrolled(nodes, count)
    return left, f"{count[0]} blocks written out, rounds of {count[1]} blocks joined"


def _unrolled(nodes: Sequence[Node], count: list[int]) -> Sequence[Node]:
    if not any(node.control is not None for node in nodes):
        return nodes
    made: list[Node] = []
    for node in nodes:
        control = node.control
        if control is not None:
            control = control.with_bodies([_unrolled(body, count) for body in control.bodies])
            node = node.controlling(control)
        made += _rounds(node, control, count) if isinstance(control, Repeat) else [node]
    return ordered(made)


def _rounds(node: Node, control: Repeat, count: list[int]) -> list[Node]:
    """The nodes in the place of a `repeat`."""
    (body,) = control.bodies
    inside = list(everything(body))
    if not inside or not control.times or any(map(_is_captured, inside)):
        return [node]
    if control.times * len(inside) <= MOST:
        return _written(node, control, count)
    joined = min(MOST_JOINED // len(inside), control.times)
    if joined < 2 or not all(map(_is_of_a_device, inside)):
        return [node]
    count[1] += 1
    rounds, first = divmod(control.times, joined)
    inner = ordered([each.at(0) for _ in range(joined) for each in body])
    _note(node, f"{joined} rounds joined")
    loop = replace(control, times=rounds, joined=joined, before=first, bodies=(inner,))
    made = [each.in_round(control.said_of(at)) for at in range(first) for each in body]
    return [*made, node.controlling(loop)]


def _written(node: Node, control: Repeat, count: list[int]) -> list[Node]:
    count[0] += 1
    (body,) = control.bodies
    made = [each.in_round(control.said_of(at)) for at in range(control.times) for each in body]
    _note(node, f"all {control.times} rounds written out")
    if node.record is not None:
        node.record.after = [figures(ordered(made))]
    return made


def _note(node: Node, said: str) -> None:
    if node.record is not None:
        node.record.changes[0].append(f"unroll: {said}")


def _is_captured(node: Node) -> bool:
    return node.device is not None and not _is_of_a_device(node)


def _is_of_a_device(node: Node) -> bool:
    """True for work of a device that is known in full, or a block."""
    is_known = node.launch is not None or node.transfer is not None
    return node.control is not None or (node.device is not None and is_known)
