"""Floor 3, parts. When functions of the host are worth being ops of their own, for several workers.

An op costs what a hundred empty functions do, so a segment is a loop until launches have shown that
it takes long: very long, and nobody minds; or long enough for what several workers can do at once,
by the times of its nodes and what comes after what, to be worth an op for each.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudasync.graph.node import Node

# Functions that take longer than this on average are spread in any case: launches in flight may
# then overlap, and stages of one follow those of the other.
LONG_S = 1e-3
# Below this it is never worth it.
SHORT_S = 30e-6
# What an op costs the worker that has it, more than in a loop.
OP_S = 10e-6
# Spread, it has to take no more of the time than this.
MOST = 0.9


class Spreading:
    """What launches of one segment have shown. A launch tells it how long it took."""

    def __init__(self, nodes: Sequence[Node], *, is_chain: bool) -> None:
        self._nodes = nodes
        # The next launch is to time each function.
        self.wants_times = False
        # Nothing that a launch takes changes it any more, unless it is very long.
        self._is_settled = is_chain or len(nodes) < 2

    def pays(self, took: float, count: int) -> bool:
        """True if a launch, which called so many functions, took so long that it is to be spread
        from now on, whatever they are."""
        if len(self._nodes) > 1 and took > LONG_S * count:
            return True
        self.wants_times = not self._is_settled and took > SHORT_S * count
        return False

    def pays_by(self, seconds: Mapping[Node, float], workers: int) -> bool:
        """True if it is to be spread, by what its nodes took in a launch."""
        self._is_settled, self.wants_times = True, False
        total = sum(seconds.values())
        return (
            total > SHORT_S * len(seconds)
            and together(self._nodes, seconds, workers) < MOST * total
        )


def urgent_first(nodes: Sequence[Node], seconds: Mapping[Node, float]) -> list[Node]:
    """The nodes, that with the longest way to the end first: an order that all of them allow."""
    left = dict(seconds)
    for node in reversed(nodes):
        for other in node.before:
            if other in left:
                left[other] = max(left[other], seconds[other] + left[node])
    # Of those that are as far from the end, as when they take no time, each stands where it did.
    return sorted(nodes, key=left.__getitem__, reverse=True)


def together(nodes: Sequence[Node], seconds: Mapping[Node, float], workers: int) -> float:
    """How long so many workers take, an op for each node, if each begins as soon as it can."""
    free = [0.0] * workers
    ends: dict[Node, float] = {}
    for node in nodes:
        begin = heappop(free)
        for other in node.before:
            # What comes before the segment is over.
            begin = max(begin, ends.get(other, 0.0))
        ends[node] = begin + seconds[node] + OP_S
        heappush(free, ends[node])
    return max(ends.values(), default=0.0)
