"""Floor 3. Graphs within a graph: recording a launch of a graph, and expanding it later.

A launch inside of a recording is one node, with the launched program on its arguments of that time.
When the outer program is made ready, the nodes inside replace it. So passes, segments and failures
see one program, as if it had been pushed node by node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.graph.control import Child
from cudasync.graph.hazards import ordered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.recorder import Recorder
    from cudasync.graph.staging import Staged


def record(
    recorder: Recorder,
    nodes: Sequence[Node],
    staged: Sequence[Staged],
    values: Mapping[str, Any],
) -> Node:
    """The next node of `recorder`: `nodes`, between the copies of the staged arguments."""
    if staged:
        before, behind = recorder.beside(), recorder.beside()
        for each in staged:
            each.copy_in(before, values)
            each.copy_out(behind, values)
        nodes = ordered([*before.nodes, *nodes, *behind.nodes])
    return recorder.record_block(Child((tuple(nodes),)))


def expanded(nodes: Sequence[Node]) -> Sequence[Node]:
    """The program with each child replaced by its nodes, also in bodies of blocks."""
    if not any(map(_has_child, nodes)):
        return nodes
    return ordered(list(_inlined(nodes)))


def _has_child(node: Node) -> bool:
    control = node.control
    return control is not None and (
        isinstance(control, Child)
        or any(_has_child(each) for body in control.bodies for each in body)
    )


def _inlined(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        control: Any = node.control
        if isinstance(control, Child):
            yield from _inlined(control.bodies[0])
        elif _has_child(node):
            yield node.controlling(control.with_bodies(list(map(expanded, control.bodies))))
        else:
            yield node
