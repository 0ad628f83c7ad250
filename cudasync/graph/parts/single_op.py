"""Floor 3, parts. A node that needs an op of its own on the engine."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cudasync.engine.host import repeated_ops
from cudasync.engine.host.repeated_ops import Resolved
from cudasync.graph.fault_candidates import Candidates
from cudasync.graph.parts.completion_variables import besides, followed
from cudasync.graph.parts.host_parallelism import noting

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.engine import Engine, Op
    from cudasync.engine.hazards.damage import Damage
    from cudasync.graph.node import Node
    from cudasync.graph.parts.completion_variables import Between
    from cudasync.graph.parts.host_parallelism import Times


class AlonePart:
    """A node that needs an op of its own on the engine."""

    is_spread = was_spread = False

    def __init__(self, node: Node) -> None:
        self.nodes = (node,)
        self.accesses, self.over = followed(node.hazards, node.name)
        self.candidates = Candidates.of(self.nodes)
        # A host function without a priority can be pushed with its accesses resolved.
        self._is_simple = node.device is None and not node.is_blocking and not node.priority
        self._resolved: Resolved | None = None

    def push(
        self,
        engine: Engine,
        frame: FrameType,
        between: Between | None = None,
        times: Times | None = None,
    ) -> Op:
        """Push the node. `times` gets the start and the end of a host function."""
        node = self.nodes[0]
        if self._is_simple and between is None and engine._is_direct:
            if self._resolved is None:
                self._resolved = Resolved(self.accesses)
            pool = engine._pools[node.pool]
            begin = self._begin if times is None else partial(self._begin_noting, times)
            op: Op = repeated_ops.push(engine, begin, self._resolved, node.name, pool, frame)
            op._said = node._said
            return op
        also_read, also_written = besides(between)
        (only_read, updated, written), reads, writes = self.accesses
        op = engine._push(
            node.fn,
            node.kind,
            reads=(*only_read, *updated, *reads, *also_read),
            writes=(*updated, *written, *writes, *also_written),
            name=node.name,
            priority=node.priority,
            device=node.device,
            pool=node.pool,
            kernel=self.candidates if node.kernel else "",  # type: ignore[arg-type]
            is_blocking=node.is_blocking,
        )
        op._said = node._said
        return op

    def _begin(self, _: Op) -> Callable[..., Any]:
        return self.nodes[0].fn

    def _begin_noting(self, times: Times, _: Op) -> Callable[..., Any]:
        return noting(self.nodes[0].fn, times, perf_counter)

    def launch(self, stream: Stream) -> None:
        """Enqueue the node on a stream of the caller's."""
        self.nodes[0].fn(stream)

    def intact_launch(self, damage: Damage) -> None:
        """Nothing: a single node that needs damaged data is left out. `damage` is then that behind
        it."""
        damage.fail(self.accesses)

    def raise_if_gone(self) -> None:
        """A node by itself has no resources that could be gone."""

    def close(self) -> None:
        """A node by itself has no resources to close."""
