"""Floor 3, parts. Nodes of one device as a graph of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver.checking import is_checked
from cudasync.engine.device import launching
from cudasync.engine.log.histories import Known
from cudasync.engine.op import OpKind
from cudasync.graph.device_graph import device_graph

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.engine import Engine, Op
    from cudasync.graph.segments import Segment


class DevicePart:
    """Nodes of one device as a CUDA graph: one call of the driver, however many they are."""

    is_spread = False

    def __init__(self, segment: Segment) -> None:
        assert segment.device is not None
        self.nodes = tuple(segment.nodes)
        self.accesses = segment.accesses()
        self._device = segment.device
        self._priority = segment.priority
        self._names = tuple(node.kernel or node.name for node in self.nodes)
        self._known = Known()
        self._is_checked = is_checked()
        self.name = segment.name
        self._executable = device_graph(self.nodes, segment.device)
        self._enqueue = self._executable.launch
        self._is_direct = not self._priority and not self._is_checked

    def push(self, engine: Engine, frame: FrameType) -> Op:
        accesses = self.accesses
        if engine._is_direct and self._is_direct:
            return launching.push(
                engine, self._enqueue, accesses, self.name, self._device, frame, self._names,
                self._known,
            )  # fmt: skip
        (only_read, updated, written), reads, writes = accesses
        op = engine._push(
            self._enqueue,
            OpKind.KERNEL,
            reads=(*only_read, *updated, *reads),
            writes=(*updated, *written, *writes),
            name=self.name,
            priority=self._priority,
            device=self._device,
            kernel=self._names,  # type: ignore[arg-type]
        )
        op._said = accesses
        return op

    def launch(self, stream: Stream) -> None:
        """Enqueue it on a stream of the caller's."""
        self._executable.launch(stream)

    def close(self) -> None:
        self._executable.close()
