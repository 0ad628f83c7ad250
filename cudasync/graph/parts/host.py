"""Floor 3, parts. Host functions of one pool, in a loop or each for itself."""

from __future__ import annotations

from operator import length_hint
from time import perf_counter
from types import MethodType
from typing import TYPE_CHECKING, Any

from cudasync.engine import pushing
from cudasync.engine.op import OpKind
from cudasync.graph.parts.alone import AlonePart

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.engine import Engine, Op
    from cudasync.graph.segments import Segment

# Host functions that take longer than this on average are handed over one by one.
HAND_OVER_S = 30e-6


class HostPart:
    """Host functions of one pool: a worker calls them in a loop.

    Where a launch has shown that they take long enough to be worth a hand-over, they are ops of
    their own from then on, for all workers of the pool.
    """

    def __init__(self, segment: Segment) -> None:
        self.nodes = tuple(segment.nodes)
        self.accesses = segment.accesses()
        self._pool = segment.pool
        self._priority = segment.priority
        self.name = segment.name
        inside = {node: at for at, node in enumerate(self.nodes)}
        self._alone = [AlonePart(node) for node in self.nodes]
        self.is_spread = False
        self._functions = [node.fn for node in self.nodes]
        # Of each, the places of those inside that it comes after.
        self._before = [
            tuple(inside[other] for other in node.before if other in inside) for node in self.nodes
        ]

    def push(self, engine: Engine, frame: FrameType) -> Op:
        if self.is_spread:
            return [each.push(engine, frame) for each in self._alone][-1]
        (only_read, updated, written), reads, writes = self.accesses
        return pushing.push(
            engine,
            self._run,
            OpKind.HOST,
            (*only_read, *updated, *reads),
            (*updated, *written, *writes),
            self.name,
            self._priority,
            None,
            engine._pools[self._pool],
            bind=_bound,
        )

    def _run(self, op: Any) -> None:
        """Call each function. What comes after one that failed is left out; what does not, is
        called all the same. Raises what the first that failed raised."""
        # The iterator knows how far it came: a counter would cost as much as a call.
        functions = iter(self._functions)
        fn: Any = None
        begun = perf_counter()
        try:
            for fn in functions:
                fn()
            took = perf_counter() - begun
            if took > HAND_OVER_S * len(self.nodes) and len(self.nodes) > 1:
                # For good: who pushes a launch meanwhile looks twice.
                self.is_spread = True
        except Exception as error:
            at = len(self._functions) - length_hint(functions) - 1
            op._step = self._said_of(at)
            self._run_rest(at)
            raise error from error.__cause__
        finally:
            op = fn = None

    def _run_rest(self, first: int) -> None:
        failed = {first}
        for at in range(first + 1, len(self._functions)):
            if failed.intersection(self._before[at]):
                failed.add(at)
                continue
            try:
                self._functions[at]()
            except Exception:
                # The first is raised; this one is told of by what it left undone.
                failed.add(at)

    def _said_of(self, at: int) -> str:
        node = self.nodes[at]
        return f"node {node.index} ({node.name}), recorded at {node.push_site}"

    def close(self) -> None:
        """There is nothing of its own."""


def _bound(op: Op, fn: Callable[..., Any]) -> Callable[..., Any]:
    return MethodType(fn, op)
