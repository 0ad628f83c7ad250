"""Floor 3. Cuts a program into segments: work for one launch of the driver, or for one worker.

A segment has one place: a device, or a pool of workers. No segment depends on a later one. Inside
of a segment the nodes stand in the order of their pushes. A node that `is_alone` is a segment by
itself.

A segment waits for all that one of its nodes needs, and what needs one of its nodes waits for all
of them. So nodes that need different things outside, or are needed by different things, add an
order to the program if they share a segment. A copy in which the driver waits, for example, would
come after all kernels of its device. `cut` joins nodes as far as that adds no order.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cudasync.engine.batch.union import Union

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudasync.driver import Device
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.node import Node


# The most segments for each that the places alone make: an op costs some 10 us, however little it
# does. A small program may have some more.
MOST_FINER, MOST_OF_SMALL = 4, 16
# Rounds in which a cut becomes finer. Two or three suffice as a rule; each leaves a right cut.
ROUNDS = 8


@dataclass
class Segment:
    """Nodes of one place."""

    device: Device | None
    pool: str
    priority: int
    is_alone: bool
    nodes: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of its op."""
        if len(self.nodes) == 1 and not self.nodes[0].steps:
            return self.nodes[0].name
        return f"graph of {sum(len(node.steps) or 1 for node in self.nodes)}"

    def accesses(self) -> Accesses:
        """Its outer reads and its writes, as of one op."""
        union = Union()
        for node in self.nodes:
            union.add(node.hazards)
        return union.accesses()


def cut(nodes: Sequence[Node], *, is_round: bool = False) -> list[Segment]:
    """The segments of a program, as few as possible without an order that the program lacks.

    Two things may add an order. One function of the host does not divide segments: otherwise a
    launch with a thousand functions beside kernels would have a thousand ops. But what needs no
    function waits for none, except in the round of a block, which pays for each op again and again.
    And a program is not cut into more than `MOST_FINER` times the segments that its places alone
    make: if what needs no function cannot be apart within that, it is not.
    """
    # Nodes of one kind may share a segment.
    kinds = _numbered({node: node if node.is_alone else _place(node) for node in nodes})
    most = max(MOST_FINER * len(_joined(nodes, kinds)), MOST_OF_SMALL)
    behind = set() if is_round else _behind_functions(nodes)
    if behind:
        apart = _numbered({node: (kinds[node], node in behind) for node in nodes})
        found, is_exact = _divided(nodes, apart, most)
        # Else kernels that could share a launch might wait for each other.
        if is_exact:
            return found
    return _divided(nodes, kinds, most)[0]


def _divided(
    nodes: Sequence[Node], kinds: Mapping[Node, int], most: int
) -> tuple[list[Segment], bool]:
    """Segments by kinds that become finer until no kind adds an order, or would make more than
    `most`; and whether none does."""
    found = _joined(nodes, kinds)
    # One segment has nothing around it that could divide it.
    for _ in range(ROUNDS if len(found) > 1 else 0):
        finer = _finer(nodes, kinds)
        if len(set(finer.values())) == len(set(kinds.values())):
            return found, len(found) <= most
        segments = _joined(nodes, finer)
        if len(segments) > most:
            return found, False
        kinds, found = finer, segments
    return found, len(found) < 2


def _joined(nodes: Sequence[Node], kinds: Mapping[Node, int]) -> list[Segment]:
    """Segments of nodes of one kind: each node joins the first of its kind that comes late enough.

    A node must stand behind its predecessors; later in the same segment counts as behind.
    """
    segments: list[Segment] = []
    # The positions of the segments of a kind, in order.
    of_kind: dict[int, list[int]] = {}
    position: dict[Node, int] = {}
    for node in nodes:
        kind = kinds[node]
        before = [position[other] + (kinds[other] != kind) for other in node.before]
        ours = of_kind.setdefault(kind, [])
        late_enough = bisect_left(ours, max(before, default=0))
        if late_enough == len(ours):
            ours.append(len(segments))
            segments.append(Segment(*_place(node), is_alone=node.is_alone))
        position[node] = ours[late_enough]
        segments[position[node]].nodes.append(node)
    return segments


def _behind_functions(nodes: Sequence[Node]) -> set[Node]:
    """The nodes of devices that need a function of the host, directly or not."""
    functions = {node for node in nodes if node.device is None and not node.is_alone}
    if not functions or len(functions) == len(nodes):
        return set()
    behind: set[Node] = set()
    for node in nodes:
        if not (functions.isdisjoint(node.before) and behind.isdisjoint(node.before)):
            behind.add(node)
    return behind - functions


def _finer(nodes: Sequence[Node], kinds: Mapping[Node, int]) -> dict[Node, int]:
    """The kinds, divided by what comes before a node and behind it."""
    around = _around(nodes, kinds)
    return _numbered({node: (kinds[node], *around[node]) for node in nodes})


def _around(nodes: Sequence[Node], kinds: Mapping[Node, int]) -> dict[Node, tuple[int, int]]:
    """For each node, what comes before it and what comes behind it, of other kinds: two sets, as
    the bits of integers.

    Nodes at the ends of edges between kinds stand for the others, which come before or behind by
    such an edge. Functions of the host are in no set, so they divide no kind.
    """
    marks = _marks(nodes, kinds)
    # A kind's own nodes do not divide it: edges inside of a segment order them.
    own: dict[int, int] = {}
    for node in nodes:
        own[kinds[node]] = own.get(kinds[node], 0) | marks[node]
    before = dict.fromkeys(nodes, 0)
    behind = dict.fromkeys(nodes, 0)
    # Equal sets are one object: in a large program most of them are equal.
    kept: dict[int, int] = {}
    for node in nodes:
        for other in node.before:
            before[node] |= before[other] | marks[other]
        before[node] = kept.setdefault(before[node], before[node])
    for node in reversed(nodes):
        behind[node] = kept.setdefault(behind[node], behind[node])
        for other in node.before:
            behind[other] |= behind[node] | marks[node]
    return {
        node: (before[node] & ~own[kinds[node]], behind[node] & ~own[kinds[node]]) for node in nodes
    }


def _marks(nodes: Sequence[Node], kinds: Mapping[Node, int]) -> dict[Node, int]:
    """For each node, its bits in the sets of other nodes: one for its device; and one of its own if
    it is alone, or at an end of an edge between nodes of devices that are of two kinds."""
    ends: set[Node] = {node for node in nodes if node.is_alone}
    for node in nodes:
        for other in node.before:
            if kinds[other] != kinds[node] and None not in (node.device, other.device):
                ends |= {node, other}
    bits: dict[Any, int] = {}
    marks: dict[Node, int] = {}
    for node in nodes:
        marked: list[Any] = [node] if node in ends else []
        if node.device is not None and not node.is_alone:
            marked.append(_place(node))
        marks[node] = sum(bits.setdefault(each, 1 << len(bits)) for each in marked)
    return marks


def _numbered(labels: Mapping[Node, Any]) -> dict[Node, int]:
    """The labels, as numbers: equal labels have one number."""
    numbers: dict[Any, int] = {}
    return {node: numbers.setdefault(label, len(numbers)) for node, label in labels.items()}


def needed(segments: Sequence[Segment]) -> list[tuple[int, ...]]:
    """For each segment of a program, the segments that it needs, by their positions."""
    number = {node: at for at, segment in enumerate(segments) for node in segment.nodes}
    return [
        tuple(sorted({number[other] for node in each.nodes for other in node.before} - {at}))
        for at, each in enumerate(segments)
    ]


def _place(it: Node | Segment) -> tuple[Device | None, str, int]:
    return it.device, it.pool, it.priority
