"""Floor 3, passes. Numbers streams of device nodes; the first has the critical path.

The driver starts ready nodes of a graph in an order of its own. Kernels on the longest path to the
end should go first, so they get a higher priority than those of other streams. A stream is a path
through the program; it orders nothing, because all order comes from edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.statistics import bytes_of, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cudasync.graph.node import Node


def run(nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """Give each device node the number of its stream."""
    count = sum(node.device is not None for node in nodes)
    if count < 2:
        return list(nodes), f"{count} nodes of devices on {count} streams"
    left = remaining(nodes)
    after = _followers(nodes, left)
    streams = _streams(nodes, left, after)
    longest = max(left.values(), default=0.0) * 1e6
    line = f"{len(streams)} nodes of devices on {len(set(streams.values()))} streams"
    if any(number for _, number in streams.values()):
        first = sum(not number for _, number in streams.values())
        line += (
            f", {first} of them on the first, the critical path of an estimated {longest:.1f} us"
        )
        return _placed(nodes, streams), line
    return list(nodes), line


def remaining(nodes: Sequence[Node]) -> dict[Node, float]:
    """For each node, the estimated time from its start until its last dependent is over."""
    left: dict[Node, float] = dict.fromkeys(nodes, 0.0)
    for node in reversed(nodes):
        # Until here it is the longest time of its successors.
        left[node] += seconds_of(node, bytes_of(node))
        for other in node.before:
            left[other] = max(left[other], left[node])
    return left


def _followers(nodes: Sequence[Node], left: Mapping[Node, float]) -> dict[Node, list[Node]]:
    """For each node its direct successors, the most urgent first."""
    after: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for other in node.before:
            after[other].append(node)
    for behind in after.values():
        behind.sort(key=left.__getitem__, reverse=True)
    return after


def _streams(
    nodes: Sequence[Node], left: Mapping[Node, float], after: Mapping[Node, list[Node]]
) -> dict[Node, tuple[object, int]]:
    """The device of each device node, and the number of its stream there."""
    found: dict[Node, tuple[object, int]] = {}
    counts: dict[object, int] = {}
    for node in sorted(nodes, key=left.__getitem__, reverse=True):
        device = node.device
        if device is None or node in found:
            continue
        number = counts.get(device, 0)
        counts[device] = number + 1
        for each in _way(node, after):
            # The path may cross the host and other devices, which are not part of this stream.
            if each.device is device:
                if each in found:
                    break
                found[each] = device, number
    return found


def _way(node: Node, after: Mapping[Node, list[Node]]) -> Iterator[Node]:
    """The path from here to the end that always takes the most urgent successor."""
    while True:
        yield node
        if not after[node]:
            return
        node = after[node][0]


def _placed(nodes: Sequence[Node], streams: Mapping[Node, tuple[object, int]]) -> list[Node]:
    made = [node.at(node.index) for node in nodes]
    twin = dict(zip(nodes, made, strict=True))
    for node, each in twin.items():
        each.before = tuple(twin[other] for other in node.before)
        if node in streams:
            each.stream = streams[node][1]
    return made
