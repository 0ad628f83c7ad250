"""Floor 3. Measures the costs of nodes in one launch, and estimates whole launches from them.

The measuring launch does what any launch does, with each node as an op: a device node between two
events of its stream, a host function by the host's clock. Nodes that overlap may cost more, so sums
and paths of costs are estimates.
"""

from __future__ import annotations

from heapq import heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.driver import Event
from cudasync.graph.parts import part_of
from cudasync.graph.parts.single_op import AlonePart
from cudasync.graph.placement import costs as placement_costs
from cudasync.graph.segments import cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.graph.node import Node


class Estimate(NamedTuple):
    """Seconds of a launch: one node after the other; with as many streams and workers as useful;
    and with one kernel at a time on each device and the existing workers.
    """

    serial_s: float
    critical_s: float
    here_s: float


def measured(nodes: Sequence[Node], engine: Any, frame: FrameType) -> dict[Node, float]:
    """The seconds of each node in a launch that is pushed now; blocks until it is over."""
    seconds: dict[Node, float] = {}
    pairs: dict[Node, tuple[Event, Event]] = {}
    ops: list[Any] = []
    for node in nodes:
        if node.control is None:
            for step in node.steps or (node,):
                ops.append(_push(step, engine, frame, seconds, pairs))
            continue
        # A block pushes ops of its own: nothing else must run meanwhile.
        _wait_for(ops)
        begun = perf_counter()
        for part in map(part_of, cut([node.at(0)])):
            part.push(engine, frame).wait()
        seconds[node] = perf_counter() - begun
    _wait_for(ops)
    for node, (start, end) in pairs.items():
        end.synchronize()
        seconds[node] = end.elapsed_ms(start) / 1000
    for node in pairs:
        placement_costs.note(node, seconds[node])
    for node in nodes:
        if node.steps:
            seconds[node] = sum(map(seconds.pop, node.steps))
    return seconds


def _wait_for(ops: list[Any]) -> None:
    for op in ops:
        op.wait()
    ops.clear()


def _push(
    node: Node,
    engine: Any,
    frame: FrameType,
    seconds: dict[Node, float],
    pairs: dict[Node, tuple[Event, Event]],
) -> Any:
    device, fn = node.device, node.fn
    if device is None:

        def on_host() -> None:
            start = perf_counter()
            fn()
            seconds[node] = perf_counter() - start

        return AlonePart(node.calling(on_host)).push(engine, frame)
    start, end = pairs[node] = Event(device, timing=True), Event(device, timing=True)

    def on_device(stream: Stream) -> None:
        start.record(stream)
        fn(stream)
        end.record(stream)

    return AlonePart(node.calling(on_device)).push(engine, frame)


def critical_path(nodes: Sequence[Node], costs: Mapping[Node, float]) -> list[Node]:
    """The nodes of the longest chain, first to last: no launch is shorter than their sum."""
    length: dict[Node, float] = {}
    via: dict[Node, Node] = {}
    for node in nodes:
        latest = max(node.before, key=length.__getitem__, default=None)
        length[node] = costs[node] + (length[latest] if latest is not None else 0)
        if latest is not None:
            via[node] = latest
    found: list[Node] = []
    each = max(nodes, key=length.__getitem__, default=None)
    while each is not None:
        found.append(each)
        each = via.get(each)
    return found[::-1]


def estimated(nodes: Sequence[Node], costs: Mapping[Node, float], engine: Any) -> Estimate:
    """The times of a launch by these costs."""
    critical = sum(costs[node] for node in critical_path(nodes, costs))
    return Estimate(sum(costs.values()), critical, _scheduled(nodes, costs, engine))


def _scheduled(nodes: Sequence[Node], costs: Mapping[Node, float], engine: Any) -> float:
    """When the last node ends, if each begins as soon as possible, in the order of the
    recording."""
    # For each place, the time from which each of its workers is free.
    free: dict[Any, list[float]] = {}
    ends: dict[Node, float] = {}
    for node in nodes:
        place: Any = node.device if node.device is not None else node.pool
        if place not in free:
            # A serial engine has no workers: one thread runs everything.
            workers = 1 if node.device is not None else getattr(engine._pools[place], "size", 1)
            free[place] = [0.0] * workers
        begin = max([heappop(free[place]), *[ends[each] for each in node.before]])
        ends[node] = begin + costs[node]
        heappush(free[place], ends[node])
    return max(ends.values(), default=0.0)
