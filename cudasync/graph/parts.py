"""Floor 3. The parts of an executable: a segment each, made ready, pushed as one op a launch."""

from __future__ import annotations

from operator import length_hint
from time import perf_counter
from types import MethodType
from typing import TYPE_CHECKING, Any

from cudasync.driver.checking import is_checked
from cudasync.engine import pushing
from cudasync.engine.device import launching
from cudasync.engine.log.histories import Known
from cudasync.engine.op import OpKind
from cudasync.graph.device_graph import device_graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.engine import Engine, Op
    from cudasync.graph.node import Node
    from cudasync.graph.segments import Segment


# Host functions that take longer than this on average are handed over one by one.
HAND_OVER_S = 30e-6


def part_of(segment: Segment) -> Any:
    """What pushes `segment`."""
    if segment.is_alone:
        return AlonePart(segment.nodes[0])
    return HostPart(segment) if segment.device is None else DevicePart(segment)


class AlonePart:
    """A node that the engine does by an op of its own."""

    is_spread = False

    def __init__(self, node: Node) -> None:
        self.nodes = (node,)
        self.accesses = node.hazards

    def push(self, engine: Engine, frame: FrameType) -> Op:
        node = self.nodes[0]
        (only_read, updated, written), reads, writes = self.accesses
        op = engine._push(
            node.fn,
            node.kind,
            reads=(*only_read, *updated, *reads),
            writes=(*updated, *written, *writes),
            name=node.name,
            priority=node.priority,
            device=node.device,
            pool=node.pool,
            kernel=node.kernel,
            is_blocking=node.is_blocking,
        )
        op._said = node._said
        return op

    def launch(self, stream: Stream) -> None:
        """Enqueue it on a stream of the caller's."""
        self.nodes[0].fn(stream)

    def close(self) -> None:
        """There is nothing of its own."""


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
        self.name = _name(self.nodes)
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
        self.name = _name(self.nodes)
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


def _name(nodes: tuple[Node, ...]) -> str:
    return nodes[0].name if len(nodes) == 1 else f"graph of {len(nodes)}"
