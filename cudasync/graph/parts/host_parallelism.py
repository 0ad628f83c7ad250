"""Floor 3, parts. Decides when host functions are worth being ops of their own.

An op costs as much as a hundred empty functions, so a segment is a loop until launches have shown
that it takes long. It is spread if it takes so long that the cost of ops does not matter. It is
also spread if several workers would gain more than that cost, by the times of its nodes and their
dependencies.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from cudasync.graph.node import Node

    Times: TypeAlias = list[tuple[float, float]]

# Functions with a longer average, in two launches one after the other, are always spread: launches
# in flight may then overlap, and their stages follow each other. The thread of one launch may have
# been suspended.
LONG_S = 1e-3
# Spreading functions below this average is never worthwhile.
SHORT_S = 30e-6
# The additional cost of an op for its worker, compared with a call in a loop.
OP_S = 10e-6
# The estimated time when spread must be below this share of the loop's.
MOST = 0.9
# One of this many spread launches must be quicker than the loop.
TRIALS = 2


class Spreading:
    """The evidence from launches of one segment. Each launch reports its time."""

    def __init__(self, nodes: Sequence[Node], *, is_chain: bool) -> None:
        self._nodes = nodes
        # The next launch must time each function.
        self.wants_times = False
        self._was_long = False
        # True once later times no longer matter, unless they are very long.
        self._is_settled = is_chain or len(nodes) < 2

    def pays(self, took: float, count: int) -> bool:
        """True if a launch of `count` functions and the one before it took so long that they must
        be spread in any case."""
        was_long, self._was_long = self._was_long, took > LONG_S * count
        if was_long and self._was_long and len(self._nodes) > 1:
            return True
        self.wants_times = not self._is_settled and took > SHORT_S * count
        return False

    def pays_by(self, seconds: Mapping[Node, float], workers: int) -> bool:
        """True if it should be spread, by the times of its nodes in a launch."""
        self._is_settled, self.wants_times = True, False
        total = sum(seconds.values())
        return (
            total > SHORT_S * len(seconds)
            and together(self._nodes, seconds, workers) < MOST * total
        )


class Trial:
    """Whether spread launches take less time than the loop did.

    Functions that hold the GIL do not overlap, and their single times do not show it.
    """

    def __init__(self, loop_s: float, count: int) -> None:
        self._loop_s, self._count = loop_s, count
        # For each watched launch, the start and end of each of its ops.
        self._launches: list[Times] = []

    def next(self) -> Times | None:
        """A list for the starts and ends of the next launch's ops. None if a launch is under way,
        or enough are over."""
        known = self._launches
        if len(known) == TRIALS or (known and len(known[-1]) < self._count):
            return None
        known.append([])
        return known[-1]

    @property
    def has_failed(self) -> bool:
        """True once enough launches are over, and none was quicker than the loop."""
        over = [each for each in self._launches if len(each) == self._count]
        return len(over) == TRIALS and all(_elapsed(each) >= self._loop_s for each in over)


def _elapsed(times: Times) -> float:
    return max(end for _, end in times) - min(begin for begin, _ in times)


def noting(
    fn: Callable[[], object], times: Times, now: Callable[[], float]
) -> Callable[[], object]:
    """`fn`, noting its start and end."""

    def call() -> object:
        begin = now()
        try:
            return fn()
        finally:
            times.append((begin, now()))

    return call


def urgent_first(nodes: Sequence[Node], seconds: Mapping[Node, float]) -> list[Node]:
    """The nodes by their longest path to the end, in an order that the edges allow."""
    left = dict(seconds)
    for node in reversed(nodes):
        for other in node.before:
            if other in left:
                left[other] = max(left[other], seconds[other] + left[node])
    # The sort is stable: nodes at equal distance, as those that take no time, keep their order.
    return sorted(nodes, key=left.__getitem__, reverse=True)


def together(nodes: Sequence[Node], seconds: Mapping[Node, float], workers: int) -> float:
    """The time of so many workers, with an op for each node, if each begins as soon as it can."""
    free = [0.0] * workers
    ends: dict[Node, float] = {}
    for node in nodes:
        begin = heappop(free)
        for other in node.before:
            # Predecessors outside of the segment are over.
            begin = max(begin, ends.get(other, 0.0))
        ends[node] = begin + seconds[node] + OP_S
        heappush(free, ends[node])
    return max(ends.values(), default=0.0)
