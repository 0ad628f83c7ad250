"""Floor 3, parts. The nodes of a device segment that need no damaged data, as a driver's graph.

A segment whose input is poisoned launches this graph instead of its own. So a failure reaches the
nodes that need the failed data, and no others, as in eager work.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions.declared_accesses import is_checked
from cudasync.engine.current import is_of_thread
from cudasync.engine.device.events import recorded
from cudasync.engine.hazards.checked import held
from cudasync.engine.hazards.damage import Damage
from cudasync.engine.log.node import origins_of
from cudasync.graph.device_graph import device_graph
from cudasync.graph.parts.completion_variables import is_silent, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cudasync.driver import Device, Event, Stream
    from cudasync.driver.graph import GraphExec
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.variable import Var
    from cudasync.graph.node import Node

# The most graphs that a segment keeps for later failures.
MOST_KEPT = 4


class IntactGraphs:
    """The graphs of one segment, by their nodes. Any number of threads may ask at once."""

    def __init__(
        self,
        nodes: Sequence[Node],
        device: Device,
        accesses: Accesses,
        over: Sequence[Var],
        name: str,
    ) -> None:
        self._nodes, self._device, self._accesses, self._name = nodes, device, accesses, name
        # The nodes, with the joined copies of a node one by one.
        self._steps = [each for node in nodes for each in node.joined or (node,)]
        self._hazards = [step.hazards for step in self._steps]
        # What a node without writes damages, if it does not run.
        self._over = tuple(over)
        self._kept: dict[tuple[Node, ...], GraphExec] = {}

    def salvage(self, op: Any) -> Callable[..., Any] | None:
        """A function that enqueues the nodes that need no data that failed before `op`; None if
        there are none. See `Op._salvage`."""
        if op._before is not None:
            # Its plan has no origins: a source has failed since, with its device.
            return None
        damage = Damage.before(origins_of(op))
        tell(damage, op, self._accesses)
        op.left_out = left_out = self._left_out(damage)
        try:
            graph = self._graph_without(left_out)
        except BaseException as error:
            if is_of_thread(error):
                raise
            # Nothing of it runs: all that it writes is wrong.
            return None
        if graph is None:
            op._damage = damage
            return None
        launch: Callable[..., Any] = graph.launch
        if is_checked():
            launch = held(launch, *self._accesses, self._name, sys._getframe())

        def enqueue(stream: Stream, event: Event | None = None) -> None:
            recorded(launch, stream, event)
            # Only now: until then the op has damaged all that it writes.
            op._damage = damage

        return enqueue

    def of(self, damage: Damage) -> GraphExec | None:
        """A graph of the nodes that need no damaged data; None if all do.

        `damage` then describes the data behind the launch. Each device function is called once
        more, to be captured. Raises whatever it raises.
        """
        return self._graph_without(self._left_out(damage))

    def _left_out(self, damage: Damage) -> frozenset[int]:
        """The positions of the steps that need damaged data; `damage` is then that behind all."""
        left_out = damage.left_out(self._hazards)
        if any(is_silent(self._hazards[at]) for at in left_out):
            damage.fail((((), (), ()), (), self._over))
        return left_out

    def _graph_without(self, left_out: frozenset[int]) -> GraphExec | None:
        rest = {step for at, step in enumerate(self._steps) if at not in left_out}
        # For each node, what is left of it: a joined copy may be left in part.
        left: dict[Node, tuple[Node, ...]] = {}
        for node in self._nodes:
            parts = tuple(each for each in node.joined or (node,) if each in rest)
            left[node] = (node,) if node.joined and parts == node.joined else parts
        key = tuple(part for parts in left.values() for part in parts)
        if not key:
            return None
        found = self._kept.get(key)
        if found is None or found.is_closed:
            found, _ = device_graph(key, edges_among(left), self._device)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            # Threads that meet here make one each, and each is good.
            self._kept[key] = found
        return found


def edges_among(left: Mapping[Node, Sequence[Node]]) -> list[tuple[Node, ...]]:
    """The predecessors of each node that is left, if so much is left of each node of a program.

    The predecessors of an absent node take its place, so the order of the others stays.
    """
    # For each node, the nodes that a successor comes after.
    ends: dict[Node, tuple[Node, ...]] = {}
    edges = []
    for node, parts in left.items():
        before = tuple(dict.fromkeys(each for other in node.before for each in ends.get(other, ())))
        edges += [before] * len(parts)
        ends[node] = tuple(parts) or before
    return edges
