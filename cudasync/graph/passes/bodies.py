"""Floor 3, passes. A pass on the bodies of blocks, as on the program around them.

A body runs from its first node to its last, so a pass may treat it as a program by itself. It must
only know which values somebody may read behind the body: these are `live`. Rounds of a block never
overlap, and nothing that touches the memory of a block runs beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any

from cudasync.graph.hazards import ordered
from cudasync.graph.passes.liveness import NOTHING, Liveness
from cudasync.graph.placement.memory_partition import everything
from cudasync.graph.statistics import Figures, figures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.passes.liveness import Live

# The passes that are run on bodies. The others look into blocks themselves; a body gains nothing
# from chains of host functions, because one op calls all functions of a segment anyway.
INSIDE = ("dead", "fusion", "reductions", "copies", "memory", "edges", "streams")
# The passes that treat temporaries in a way of their own, unless these are live.
BY_LIFE = ("dead", "fusion", "reductions", "memory")


@dataclass(eq=False)
class Record:
    """What the passes do to one block, for the report."""

    # The block as its author wrote it.
    said: str
    # For each body its figures before all passes, and what passes did to it.
    before: list[Figures]
    changes: list[list[str]]
    # Those of the nodes that stand in its place, once there is no block.
    after: list[Figures] | None = None


def recorded(nodes: Sequence[Node]) -> tuple[Sequence[Node], list[Record]]:
    """The program with a record for each block, and the records."""
    found: list[Record] = []
    return _recorded(nodes, found), found


def _recorded(nodes: Sequence[Node], found: list[Record]) -> Sequence[Node]:
    changed: dict[Node, Node] = {}
    for node in nodes:
        if node.control is not None:
            control = node.control
            said = f"{control.name}, recorded at {node.push_site}"
            record = Record(said, list(map(figures, control.bodies)), [[] for _ in control.bodies])
            found.append(record)
            inside = [_recorded(body, found) for body in control.bodies]
            changed[node] = node.controlling(control.with_bodies(inside))
            changed[node].record = record
    return _replaced(nodes, changed)


def alone(run: Callable[..., Any], nodes: Sequence[Node]) -> tuple[Sequence[Node], str]:
    """A program without blocks after a pass, and the line of the pass."""
    left, line = run(nodes)
    # A program with as many nodes as before keeps its edges.
    return ordered(left) if len(left) < len(nodes) else left, line


def through(
    name: str, run: Callable[..., Any], nodes: Sequence[Node]
) -> tuple[Sequence[Node], str]:
    """A program with blocks after this pass, and the line of the pass."""
    if name not in INSIDE:
        return alone(run, nodes)
    lines = []
    while True:
        count, around = sum(1 for _ in everything(nodes)), len(nodes)
        liveness = Liveness(nodes) if name in BY_LIFE else None
        live = NOTHING if liveness is None else liveness.behind_launch(nodes)
        nodes, line = _through(name, run, nodes, live, liveness)
        left = sum(1 for _ in everything(nodes))
        is_changed = left - len(nodes) != count - around
        inside = f", inside of blocks {count - around} nodes -> {left - len(nodes)}"
        lines.append(line + inside * is_changed)
        # What `dead` drops inside may have been the reason for something outside, and the reverse.
        if name != "dead" or left == count:
            return nodes, lines[0] if len(lines) < 3 else ", then ".join(lines[:-1])


def _through(
    name: str,
    run: Callable[..., Any],
    nodes: Sequence[Node],
    live: Live,
    liveness: Liveness | None,
) -> tuple[Sequence[Node], str]:
    """The innermost bodies first: behind the pass, a block may touch less."""
    ends = {} if liveness is None else liveness.behind_bodies(nodes, live)
    changed: dict[Node, Node] = {}
    for node in nodes:
        if node.control is None:
            continue
        inside = []
        for at, body in enumerate(node.control.bodies):
            left, line = _through(name, run, body, ends.get(node, NOTHING), liveness)
            if len(left) != len(body) and node.record is not None:
                node.record.changes[at].append(f"{name}: {line}")
            inside.append(left)
        if not all(map(_is_same, inside, node.control.bodies)):
            changed[node] = node.controlling(node.control.with_bodies(inside))
    around = _replaced(nodes, changed)
    left, line = run(around, live) if name in BY_LIFE else run(around)
    return ordered(left) if len(left) < len(around) else left, line


def _replaced(nodes: Sequence[Node], changed: Mapping[Node, Node]) -> Sequence[Node]:
    """The program with these blocks in the place of others. Without other accesses, it keeps its
    edges."""
    if not changed:
        return nodes
    made = [changed.get(node, node) for node in nodes]
    if any(node.hazards != other.hazards for node, other in changed.items()):
        return ordered(made)
    twins = {node: each.at(node.index) for node, each in zip(nodes, made, strict=True)}
    for node, each in twins.items():
        each.before = tuple(twins[other] for other in node.before)
    return list(twins.values())


def _is_same(some: Sequence[Node], others: Sequence[Node]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def said_of(records: Sequence[Record], nodes: Sequence[Node]) -> list[str]:
    """A line for each body of a block: its own nodes before all passes and after them."""
    left = {node.record: node for node in everything(nodes) if node.record is not None}
    lines = []
    for record in records:
        for at, (before, changes) in enumerate(zip(record.before, record.changes, strict=True)):
            said = ["block", record.said] if not at else ["block", "otherwise", record.said]
            node = left.get(record)
            if node is not None:
                assert node.control is not None
                after = figures(node.control.bodies[at])
            elif record.after is not None:
                after = record.after[at]
            else:
                changes = [*changes, "no round is left"]
                after = Figures(0, 0, 0, 0.0)
            figured = f"{' '.join(said)}: {before.until(after)}"
            lines.append("; ".join([figured, *changes]))
    return lines
