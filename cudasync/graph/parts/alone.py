"""Floor 3, parts. A node that the engine does by an op of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.candidates import Candidates
from cudasync.graph.parts.over import besides, followed

if TYPE_CHECKING:
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

    def push(self, engine: Engine, frame: FrameType, between: Between | None = None) -> Op:
        node = self.nodes[0]
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

    def launch(self, stream: Stream) -> None:
        """Enqueue it on a stream of the caller's."""
        self.nodes[0].fn(stream)

    def raise_if_gone(self) -> None:
        """There is nothing of its own."""

    def close(self) -> None:
        """There is nothing of its own."""
