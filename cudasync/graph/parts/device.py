"""Floor 3, parts. Nodes of one device as a graph of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver.checking import is_checked
from cudasync.engine.device import launching
from cudasync.engine.log.histories import Known
from cudasync.engine.op import OpKind
from cudasync.errors import ClosedError
from cudasync.graph.candidates import Candidates
from cudasync.graph.parts.over import besides, followed
from cudasync.graph.sharing import shared_graph

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.driver.graph import GraphExec
    from cudasync.engine import Engine, Op
    from cudasync.graph.parts.over import Between
    from cudasync.graph.segments import Segment
    from cudasync.graph.shelf import Shelf


class DevicePart:
    """Nodes of one device as a CUDA graph: one call of the driver, however many they are."""

    is_spread = False

    def __init__(self, segment: Segment, shelf: Shelf | None = None) -> None:
        assert segment.device is not None
        self.nodes = tuple(segment.nodes)
        self.accesses, self.over = followed(segment.accesses(), segment.name)
        self._device = segment.device
        self._priority = segment.priority
        self._known = Known()
        self._is_checked = is_checked()
        self.name = segment.name
        # None once it is closed. Launches that were pushed have it still, and are issued.
        self._executable: GraphExec | None
        self._executable, self.origin, ends = shared_graph(self.nodes, segment.device, shelf)
        self.candidates = Candidates.of(self.nodes, ends)
        self._is_direct = not self._priority and not self._is_checked

    def push(self, engine: Engine, frame: FrameType, between: Between | None = None) -> Op:
        accesses = self.accesses
        executable = self._executable
        if executable is None or executable.is_closed:
            executable = self._or_raise()
        if engine._is_direct and self._is_direct and between is None:
            return launching.push(
                engine, executable.launch, accesses, self.name, self._device, frame,
                self.candidates, self._known,
            )  # fmt: skip
        (only_read, updated, written), reads, writes = accesses
        also_read, also_written = besides(between)
        op = engine._push(
            executable.launch,
            OpKind.KERNEL,
            reads=(*only_read, *updated, *reads, *also_read),
            writes=(*updated, *written, *writes, *also_written),
            name=self.name,
            priority=self._priority,
            device=self._device,
            kernel=self.candidates,  # type: ignore[arg-type]
        )
        op._said = accesses
        return op

    def launch(self, stream: Stream) -> None:
        """Enqueue it on a stream of the caller's."""
        self._or_raise().launch(stream)

    def raise_if_gone(self) -> None:
        self._or_raise()

    def _or_raise(self) -> GraphExec:
        executable = self._executable
        if executable is None:
            raise ClosedError("the executable was closed; instantiate the graph again")
        # What its device's reset took with it says so.
        executable.raise_if_closed()
        return executable

    def close(self) -> None:
        self._executable = None
