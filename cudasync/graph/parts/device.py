"""Floor 3, parts. Nodes of one device as one graph of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from cudasync.driver.extensions.declared_accesses import is_checked
from cudasync.engine import general_push
from cudasync.engine.device import device_push
from cudasync.engine.log.histories import Known
from cudasync.engine.op import OpKind
from cudasync.errors import ClosedError
from cudasync.graph.executable_sharing import shared_graph
from cudasync.graph.fault_candidates import Candidates
from cudasync.graph.parts.completion_variables import besides, followed
from cudasync.graph.parts.intact import IntactGraphs
from cudasync.graph.segment_timing import TimedGraphs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.driver.graph import GraphExec
    from cudasync.engine import Engine, Op
    from cudasync.engine.general_push import Bind
    from cudasync.engine.hazards.damage import Damage
    from cudasync.engine.op import Salvage
    from cudasync.graph.executable_reuse import Shelf
    from cudasync.graph.parts.completion_variables import Between
    from cudasync.graph.segments import Segment


class DevicePart:
    """Nodes of one device as a CUDA graph: one driver call, whatever their number."""

    is_spread = was_spread = False

    def __init__(self, segment: Segment, shelf: Shelf | None = None) -> None:
        assert segment.device is not None
        self.nodes = tuple(segment.nodes)
        self.accesses, self.over = followed(segment.accesses(), segment.name)
        self._device = segment.device
        self._priority = segment.priority
        self._known = Known()
        self._is_checked = is_checked()
        self.name = segment.name
        # None once it is closed. Pushed launches keep their reference, and are issued.
        self._executable: GraphExec | None
        executable, self.origin, ends = shared_graph(self.nodes, segment.device, shelf)
        # For launches whose input is damaged. It does not refer to this part, whose executable
        # others may take once the part is gone.
        self.intact = IntactGraphs(self.nodes, segment.device, self.accesses, self.over, self.name)
        # Each pushed launch has this object until it is over, and with it the nodes' arrays.
        self._executable = executable.keeping(self.intact)
        self._salvage: Salvage = WeakMethod(self.intact.salvage)
        self.candidates = Candidates.of(self.nodes, ends, self._salvage)
        # True if `push_only` suffices on an engine without special cases.
        self.is_direct = not self._priority and not self._is_checked
        # A bound method made once; None once it is closed.
        self._enqueue: Callable[..., None] | None = self._executable.launch
        # For profiles that ask for times of nodes; None until the first does.
        self._timings: TimedGraphs | None = None

    def push(self, engine: Engine, frame: FrameType, between: Between | None = None) -> Op:
        if engine._is_direct and self.is_direct and between is None:
            return self.push_only(engine, frame)
        executable = self._or_raise()
        accesses = self.accesses
        (only_read, updated, written), reads, writes = accesses
        also_read, also_written = besides(between)
        fn, candidates, bind = executable.launch, self.candidates, None
        recorder = engine._ledger.recorder
        # On a serial engine, times are those of the host.
        is_watched = recorder is not None and recorder.times_nodes and engine._serial is None
        if is_watched and not self._is_checked:
            fn, candidates, bind = self._timed()
        op = general_push.push(
            engine,
            fn,
            OpKind.KERNEL,
            (*only_read, *updated, *reads, *also_read),
            (*updated, *written, *writes, *also_written),
            self.name,
            self._priority,
            self._device,
            engine._pools["compute"],
            kernel=candidates,
            bind=bind,
        )
        op._said = accesses
        return op

    def push_only(self, engine: Engine, frame: FrameType) -> Op:
        """`push` onto a direct engine, if the part is direct: the launch that costs the least."""
        executable, enqueue = self._executable, self._enqueue
        # `GraphExec.is_closed`, inlined.
        if (
            executable is None
            or enqueue is None
            or (owned := executable._owned).raw is None
            or owned.token is not owned.context.token
        ):
            enqueue = self._or_raise().launch
        return device_push.push(
            engine, enqueue, self.accesses, self.name, self._device, frame,
            self.candidates, self._known,
        )  # fmt: skip

    def _timed(self) -> tuple[Callable[..., None], Candidates, Bind]:
        """A launch with times of its nodes, its candidates, and the function that binds it to the
        op."""
        if self._timings is None:
            self._timings = TimedGraphs(self.nodes, self._device, self.intact)
        timed = self._timings.take()

        def bind(op: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
            op.node_times = timed
            return fn

        return timed.launch, Candidates.of(self.nodes, timed.ends, self._salvage), bind

    def launch(self, stream: Stream) -> None:
        """Enqueue the graph on a stream of the caller's."""
        self._or_raise().launch(stream)

    def intact_launch(self, damage: Damage) -> Callable[[Stream], None] | None:
        """A launch of the nodes that need no damaged data, by `IntactGraphs.of`; None if all do."""
        graph = self.intact.of(damage)
        return None if graph is None else graph.launch

    def raise_if_gone(self) -> None:
        self._or_raise()

    def _or_raise(self) -> GraphExec:
        executable = self._executable
        if executable is None:
            raise ClosedError("the executable was closed: instantiate the graph again")
        # This raises if a reset of its device took the executable.
        executable.raise_if_closed()
        return executable

    def close(self) -> None:
        self._executable = self._enqueue = self._timings = None
