"""Floor 3, placement. Plans the device of each step of a program, and of each block.

A block is one task of the program around it. If it runs on one device as a whole, the driver can
run its rounds. Otherwise its steps are placed one by one, as a program of its own in a row, because
the engine runs them one after the other. Moves inside of a round then count for each round, and
moves at the edges count once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.graph.placement import blocks, costs
from cudasync.graph.placement.memory_partition import everything
from cudasync.graph.placement.schedule import Task, at_home, scheduled
from cudasync.graph.placement.steps import needed, written_by
from cudasync.graph.statistics import bytes_of, rounds_of, seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudasync.driver import Device
    from cudasync.graph.control import Control
    from cudasync.graph.node import Node
    from cudasync.graph.placement.blocks import Edges
    from cudasync.graph.placement.memory_partition import Piece, Pieces

# The engine's additional cost for a step of a block whose rounds the driver could run.
STEP_S = 30e-6


class Plan(NamedTuple):
    """The placed steps, including those inside of blocks; the time at the end, and the time at the
    end with each step at its recorded place."""

    places: dict[Node, Device]
    end_s: float
    home_s: float


class Planner:
    """The facts about a program that plans of it need."""

    def __init__(self, pieces: Pieces, free: set[Node], devices: Sequence[Device]) -> None:
        self._pieces = pieces
        self._free = free
        self._devices = devices

    def plan(self, nodes: Sequence[Node]) -> Plan:
        """The plan of a program whose steps overlap where their data allow."""
        return self._planned(nodes, None, is_row=False)

    def _planned(self, nodes: Sequence[Node], edges: Edges | None, *, is_row: bool) -> Plan:
        inside = {each: self._inside(each) for each in nodes if each.control is not None}
        tasks = self._tasks(nodes, inside, edges, is_row=is_row)
        found, here = (
            scheduled(tasks, costs.link),
            at_home(_recorded(nodes, tasks, inside), costs.link),
        )
        if not found.end_s < here.end_s:
            return Plan({}, here.end_s, here.end_s)
        places: dict[Node, Device] = {}
        for node, place in zip(nodes, found.places, strict=True):
            on: Any = place
            if node in inside:
                steps = [each for each in everything([node]) if each.control is None]
                places.update(inside[node].places if on is None else dict.fromkeys(steps, on))
            elif node in self._free:
                places[node] = on
        return Plan(places, found.end_s, here.end_s)

    def _inside(self, block: Node) -> Plan:
        """The plan of a block whose steps are placed one by one."""
        control = block.control
        assert control is not None
        # The first plan uses recorded places; it gives the values at the edges.
        places = self._bodies(control, None)[0]
        edges = blocks.edges(control, self._pieces, places)
        places, end_s, home_s = self._bodies(control, edges)
        if not places:
            return Plan({}, home_s, home_s)
        moved_s = sum(
            costs.link(piece.cuts[at + 1] - piece.cuts[at])
            for (piece, at), on in edges.devices.items()
            for device in on
            if device is not piece.device and not piece.is_temporary
        )
        rounds = rounds_of(control)
        return Plan(places, end_s * rounds + moved_s, home_s * rounds)

    def _bodies(self, control: Control, edges: Edges | None) -> Plan:
        """The plan of one round; the longest, if only one of two bodies runs."""
        plans = [self._planned(body, edges, is_row=True) for body in control.bodies]
        places = {node: on for each in plans for node, on in each.places.items()}
        return Plan(
            places,
            max((each.end_s for each in plans), default=0.0),
            max((each.home_s for each in plans), default=0.0),
        )

    def _tasks(
        self,
        nodes: Sequence[Node],
        inside: Mapping[Node, Plan],
        edges: Edges | None,
        *,
        is_row: bool,
    ) -> list[Task]:
        """The steps as tasks: the data that each needs of others, and its possible places."""
        pieces = self._pieces
        at_edges: Mapping[tuple[Piece, int], Any] = {} if edges is None else edges.devices
        place = {node: at for at, node in enumerate(nodes)}
        # The last writer of each part.
        writer: dict[tuple[Piece, int], int] = {}
        tasks: list[Task] = []
        for at, node in enumerate(nodes):
            before = {place[other]: 0 for other in node.before}
            if is_row and at:
                before.setdefault(at - 1, 0)
            needs: list[tuple[Any, int]] = []
            for region in needed(node):
                piece = pieces.of(region)
                for part in piece.parts(region):
                    size = piece.cuts[part + 1] - piece.cuts[part]
                    other = writer.get((piece, part))
                    on = at_edges.get((piece, part), ())
                    if other is not None:
                        before[other] = before.get(other, 0) + size
                    elif len(on) == 1:
                        needs.append((next(iter(on)), size))
                    elif not on and not piece.is_temporary:
                        needs.append((piece.device, size))
            for region in written_by(node):
                piece = pieces.of(region)
                writer.update(((piece, part), at) for part in piece.parts(region))
            tasks.append(Task(self._seconds(node, inside), list(before.items()), needs))
        leaves: dict[int, Counter[Any]] = {}
        for (piece, part), at in writer.items():
            on = at_edges.get((piece, part), ())
            if on or (not is_row and not piece.is_temporary):
                size = piece.cuts[part + 1] - piece.cuts[part]
                leaves.setdefault(at, Counter())[next(iter(on), piece.device)] += size
        for at, found in leaves.items():
            tasks[at] = tasks[at]._replace(leaves=list(found.items()))
        return tasks

    def _seconds(self, node: Node, inside: Mapping[Node, Plan]) -> dict[Any, float]:
        """The possible places of a step and its seconds there, the recorded place first."""
        plan = inside.get(node)
        if plan is not None:
            return self._seconds_of_block(node, plan)
        if node.device is None:
            return {None: seconds_of(node, bytes_of(node))}
        places = dict.fromkeys([node.device, *(self._devices if node in self._free else ())])
        return {device: costs.seconds_on(node, device) for device in places}

    def _seconds_of_block(self, block: Node, plan: Plan) -> dict[Any, float]:
        """As a whole on each device, if it may be moved; the host stands for its steps one by
        one."""
        if block not in self._free:
            return {None: plan.end_s}
        steps = [each for each in everything([block]) if each.control is None]
        home: Any = steps[0].device
        found: dict[Any, float] = {
            device: _on(block, device) for device in dict.fromkeys([home, *self._devices])
        }
        if plan.places:
            found[None] = plan.end_s + STEP_S * _steps_of(block)
        return found


def _recorded(
    nodes: Sequence[Node], tasks: Sequence[Task], inside: Mapping[Node, Plan]
) -> list[Task]:
    """The same tasks; blocks that cannot go elsewhere take their recorded time."""
    return [
        each._replace(seconds={None: inside[node].home_s})
        if node in inside and set(each.seconds) == {None}
        else each
        for node, each in zip(nodes, tasks, strict=True)
    ]


def _on(node: Node, device: Device) -> float:
    """The seconds of a step on this device, or of a block as a whole."""
    if node.control is None:
        return costs.seconds_on(node, device)
    inside = (each for body in node.control.bodies for each in body)
    return rounds_of(node.control) * sum(_on(each, device) for each in inside)


def _steps_of(node: Node) -> int:
    """The number of steps that run for a block, one after the other."""
    if node.control is None:
        return 1
    inside = (each for body in node.control.bodies for each in body)
    return rounds_of(node.control) * sum(map(_steps_of, inside))
