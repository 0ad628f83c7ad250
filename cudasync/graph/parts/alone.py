"""Floor 3, parts. A node that the engine does by an op of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.host import resolved
from cudasync.engine.host.resolved import Resolved
from cudasync.graph.candidates import Candidates
from cudasync.graph.parts.over import besides, followed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.engine import Engine, Op
    from cudasync.graph.node import Node
    from cudasync.graph.parts.over import Between


class AlonePart:
    """A node that the engine does by an op of its own."""

    is_spread = False

    def __init__(self, node: Node) -> None:
        self.nodes = (node,)
        self.accesses, self.over = followed(node.hazards, node.name)
        self.candidates = Candidates.of(self.nodes)
        # A function of the host may be pushed with each launch of its segment, or never.
        self._is_simple = node.device is None and not node.is_blocking and not node.priority
        self._resolved: Resolved | None = None

    def push(self, engine: Engine, frame: FrameType, between: Between | None = None) -> Op:
        node = self.nodes[0]
        if self._is_simple and between is None and engine._is_direct:
            if self._resolved is None:
                self._resolved = Resolved(self.accesses)
            pool = engine._pools[node.pool]
            op: Op = resolved.push(engine, self._begin, self._resolved, node.name, pool, frame)
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

    def launch(self, stream: Stream) -> None:
        """Enqueue it on a stream of the caller's."""
        self.nodes[0].fn(stream)

    def raise_if_gone(self) -> None:
        """There is nothing of its own."""

    def close(self) -> None:
        """There is nothing of its own."""
