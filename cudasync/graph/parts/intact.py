"""Floor 3, parts. The nodes of a device segment that need no damaged data, as a driver's graph.

A segment whose input is poisoned launches this graph instead of its own. So a failure reaches the
nodes that need the failed data, and no others, as in eager work.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions.declared_accesses import is_checked
from cudasync.engine.device.events import recorded
from cudasync.engine.hazards.checked import held
from cudasync.engine.hazards.damage import Damage
from cudasync.engine.log.node import origins_of
from cudasync.graph.device_graph import device_graph
from cudasync.graph.parts.over import is_silent, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

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
        # What a node without writes damages, if it does not run.
        self._over = tuple(over)
        self._kept: dict[tuple[Node, ...], GraphExec] = {}

    def salvage(self, op: Any) -> Callable[..., Any] | None:
        """A function that enqueues the nodes that need no data that failed before `op`; None if
        there are none. See `Op._salvage`."""
        if op._before is not None:
            # Its plan has no origins: a source has failed since, with its device.
            return None
        op._damage = Damage.before(origins_of(op))
        tell(op, self._accesses)
        try:
            graph = self.of(op._damage)
        except Exception:
            graph = None
            # Nothing of it runs: all that it writes is wrong.
            op._damage = None
        if graph is None:
            return None
        launch = graph.launch
        if is_checked():
            launch = held(launch, *self._accesses, self._name, sys._getframe())

        def enqueue(stream: Stream, event: Event | None = None) -> None:
            try:
                recorded(launch, stream, event)
            except BaseException:
                op._damage = None
                raise

        return enqueue

    def of(self, damage: Damage) -> GraphExec | None:
        """A graph of the nodes that need no damaged data; None if all do.

        `damage` then describes the data behind the launch. Each device function is called once
        more, to be captured. Raises whatever it raises.
        """
        left = []
        for node in self._nodes:
            accesses = node.hazards
            if damage.reaches(accesses):
                damage.fail(accesses)
                if is_silent(accesses):
                    damage.fail((((), (), ()), (), self._over))
            else:
                damage.heal(accesses)
                left.append(node)
        if not left:
            return None
        key = tuple(left)
        found = self._kept.get(key)
        if found is None or found.is_closed:
            found, _ = device_graph(left, edges_among(self._nodes, set(left)), self._device)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            # Threads that meet here make one each, and each is good.
            self._kept[key] = found
        return found


def edges_among(nodes: Sequence[Node], left: Collection[Node]) -> list[tuple[Node, ...]]:
    """The predecessors of each node that is `left`. The predecessors of an absent node take its
    place, so the order of the others stays."""
    # For each node, the nodes that a successor comes after.
    ends: dict[Node, tuple[Node, ...]] = {}
    edges = []
    for node in nodes:
        before = tuple(dict.fromkeys(each for other in node.before for each in ends.get(other, ())))
        if node in left:
            edges.append(before)
            ends[node] = (node,)
        else:
            ends[node] = before
    return edges
