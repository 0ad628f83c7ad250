"""Floor 3. The edges of a program: the predecessors of each node, by the engine's own hazards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.hazards.history import History
from cudasync.engine.hazards.interval_map import IntervalMap
from cudasync.engine.hazards.predecessors import predecessors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.engine.hazards.variable import Var
    from cudasync.graph.node import Node


class Hazards:
    """The histories of the memory and variables that one program touches, in a map of its own."""

    def __init__(self) -> None:
        self._ranges = IntervalMap()
        self._variables: dict[Var, History] = {}

    def enter(self, node: Any) -> tuple[Node, ...]:
        """Enter `node` as the next of the program; returns its predecessors, in order."""
        (only_read, updated, written), read, also_written = node.hazards
        ranges = self._ranges
        # All splits first: a later split may divide a part that was returned before.
        ranges.read_all(only_read + updated + written)
        reads = ranges.read_all(only_read + updated)
        writes = ranges.read_all(updated + written)
        tokens_read = [self._history(each) for each in read]
        tokens_written = [self._history(each) for each in also_written]
        before, _ = predecessors(reads + tokens_read, writes + tokens_written)
        before.pop(node, None)
        for history in (*reads, *tokens_read):
            if history.writer is not node:
                history.add_reader(node)
        for region in updated + written:
            ranges.overwrite(region, node)
        for history in tokens_written:
            history.overwrite(node)
        found: Any = before
        return tuple(sorted(found, key=_index))

    def _history(self, variable: Var) -> History:
        history = self._variables.get(variable)
        if history is None:
            history = self._variables[variable] = History(0)
        return history


def ordered(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The same nodes as a separate program: numbered, with the edges among them."""
    hazards = Hazards()
    made = tuple(node.at(index) for index, node in enumerate(nodes))
    for node in made:
        node.before = hazards.enter(node)
    return made


def reduced(nodes: tuple[Node, ...]) -> list[tuple[Node, ...]]:
    """The transitive reduction: each node's predecessors without the predecessors of these.

    Only `nodes` count; they stand in the order of their recording. The ancestors of a node are an
    integer with a bit for each node, so a union is one operation.
    """
    place = {node: at for at, node in enumerate(nodes)}
    ancestors: list[int] = []
    kept: list[tuple[Node, ...]] = []
    for node in nodes:
        behind = 0
        direct: list[Node] = []
        # The latest first: its predecessors are then known to be ancestors.
        for other in reversed(node.before):
            at = place.get(other)
            if at is None:
                continue
            if not behind >> at & 1:
                direct.append(other)
                behind |= ancestors[at] | 1 << at
        ancestors.append(behind)
        kept.append(tuple(reversed(direct)))
    return kept


def _index(node: Node) -> int:
    return node.index
