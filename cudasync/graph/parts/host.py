"""Floor 3, parts. Host functions of one pool, in a loop or each for itself."""

from __future__ import annotations

from time import perf_counter
from types import MethodType
from typing import TYPE_CHECKING, Any

from cudasync.engine import pushing
from cudasync.engine.hazards.damage import Damage
from cudasync.engine.host import resolved
from cudasync.engine.log import fences
from cudasync.engine.log.node import origins_of
from cudasync.engine.op import OpKind
from cudasync.graph.parts.alone import AlonePart
from cudasync.graph.parts.calling import Calls
from cudasync.graph.parts.over import besides, is_silent, tell
from cudasync.graph.parts.spreading import Spreading, urgent_first
from cudasync.graph.segments import Segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.engine import Engine, Op
    from cudasync.engine.hazards.variable import Var
    from cudasync.graph.node import Node
    from cudasync.graph.parts.over import Between


class HostPart:
    """Host functions of one pool: a worker calls them in a loop.

    Where launches have shown that it pays (`spreading`), they are ops of their own from then on,
    for all workers of the pool.
    """

    def __init__(self, segment: Segment) -> None:
        nodes = segment.nodes
        # A chain by itself is taken apart as any functions are.
        self.nodes = nodes[0].steps if len(nodes) == 1 and nodes[0].steps else tuple(nodes)
        self._pool = segment.pool
        self._priority = segment.priority
        self.name = segment.name
        # What it is made of when it is spread: a chain is still called in one op, until its own
        # functions are found to take long.
        self._alone: list[AlonePart | HostPart] = [
            HostPart(_chain(node, segment)) if node.steps else AlonePart(node)
            for node in self.nodes
        ]
        self._steps = tuple(step for node in self.nodes for step in node.steps or (node,))
        # As of one op: it writes the variable of the first that writes nothing.
        silent = [over for each in self._alone for over in each.over]
        self._over = tuple(silent[:1])
        regions, read, written = segment.accesses()
        self.accesses = regions, read, (*written, *self._over)
        self.is_spread = False
        self._spreading = Spreading(self.nodes, is_chain=self.nodes is nodes[0].steps)
        self._calls = Calls([step.fn for step in self._steps])
        self._resolved = resolved.Resolved(self.accesses)

    @property
    def over(self) -> tuple[Var, ...]:
        """What the ops of a launch write that is no node's. To be asked behind its push: it may
        have been spread meanwhile, but not taken together."""
        return tuple(v for each in self._alone for v in each.over) if self.is_spread else self._over

    def push(self, engine: Engine, frame: FrameType, between: Between | None = None) -> Op:
        if self.is_spread:
            return [each.push(engine, frame, between) for each in self._alone][-1]
        if between is None and engine._is_direct and not self._priority:
            return self._push_loop(engine, frame)
        (only_read, updated, written), reads, writes = self.accesses
        also_read, also_written = besides(between)
        return pushing.push(
            engine,
            self._run,
            OpKind.HOST,
            (*only_read, *updated, *reads, *also_read),
            (*updated, *written, *writes, *also_written),
            self.name,
            self._priority,
            None,
            engine._pools[self._pool],
            bind=self._bound,
        )

    def push_only(self, engine: Engine, frame: FrameType) -> Op:
        """Push a launch of which this is all; an op that is over when it is."""
        if not self.is_spread and not self._priority:
            return self._push_loop(engine, frame)
        op = self.push(engine, frame)
        # It may have been spread meanwhile, and then there is a fence too many.
        return self._fence(engine) if self.is_spread else op

    def _push_loop(self, engine: Engine, frame: FrameType) -> Op:
        pool = engine._pools[self._pool]
        return resolved.push(engine, self._begin, self._resolved, self.name, pool, frame)

    def _fence(self, engine: Engine) -> Op:
        (_, updated, written), _, variables = self.accesses
        return fences.behind(engine, [*variables, *self.over], [*updated, *written])

    def _run(self, op: Any) -> None:
        """Call each function. What needs what one that failed should have written is left out, all
        else is called. Raises what the first that failed raised."""
        recorder = op._engine._ledger.recorder
        calls = self._calls
        wants_times = self._spreading.wants_times
        if wants_times or (recorder is not None and recorder.times_functions):
            calls = self._timed(op)
        # They know how far it came: a counter would cost as much as a call.
        place = calls.begin()
        begun = perf_counter()
        try:
            calls.go(*place)
            if self._spreading.pays(perf_counter() - begun, len(calls)) or (
                wants_times and self._pays(op)
            ):
                # For good: who pushes a launch meanwhile looks twice.
                self.is_spread = True
        except Exception as error:
            at = calls.failed_at(*place, error)
            op._step = self._said_of(at)
            op._damage = Damage()
            self._fail(at, op)
            self._run_on(at + 1, op)
            raise error from error.__cause__
        finally:
            op = None

    def _pays(self, op: Any) -> bool:
        """True if it is to be spread, by the times that a launch has noted."""
        took = {step: end - begin for step, begin, end in op.node_times}
        seconds = {node: sum(took[step] for step in node.steps or (node,)) for node in self.nodes}
        # A serial engine has no workers, and one thread.
        workers = getattr(op._engine._pools[self._pool], "size", 1)
        if not self._spreading.pays_by(seconds, workers):
            return False
        # Of what is ready workers take what was pushed first.
        parts = dict(zip(self.nodes, self._alone, strict=True))
        self._alone = [parts[node] for node in urgent_first(self.nodes, seconds)]
        return True

    def _timed(self, op: Any) -> Calls:
        """The same calls, which note when each began and ended; for who watches."""
        op.node_times = noted = []

        def timed(step: Node) -> Callable[[], None]:
            def call() -> None:
                begun = perf_counter()
                try:
                    step.fn()
                finally:
                    noted.append((step, begun, perf_counter()))

            return call

        return Calls([timed(step) for step in self._steps])

    def _salvage(self, op: Any) -> None:
        """Call each function that needs nothing of what was to be written before and failed."""
        op._damage = Damage.before(origins_of(op))
        self._run_on(0, op)

    def _run_on(self, first: int, op: Any) -> None:
        """Call those from `first` on that need nothing that is wrong; what else becomes of it."""
        damage = op._damage
        for at in range(first, len(self._calls)):
            accesses = self._steps[at].hazards
            if not damage.reaches(accesses):
                try:
                    self._calls.functions[at]()
                except Exception:
                    # One failure is raised; this one is told of by what it left undone.
                    pass
                else:
                    damage.heal(accesses)
                    continue
            self._fail(at, op)

    def _fail(self, at: int, op: Any) -> None:
        accesses = self._steps[at].hazards
        op._damage.fail(accesses)
        if is_silent(accesses):
            op._damage.fail((((), (), ()), (), self._over))
        tell(op, self.accesses)

    def _bound(self, op: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
        op._salvage = self._salvage
        return MethodType(fn, op)

    def _begin(self, op: Any) -> Callable[..., Any]:
        op._salvage = self._salvage
        return MethodType(self._run, op)

    def _said_of(self, at: int) -> str:
        node = self._steps[at]
        return f"node {node.index} ({node.name}), recorded at {node.push_site}"

    def raise_if_gone(self) -> None:
        """There is nothing of its own."""

    def close(self) -> None:
        """There is nothing of its own."""


def _chain(node: Node, around: Segment) -> Segment:
    """A node with steps as a segment by itself."""
    return Segment(None, around.pool, around.priority, is_alone=False, nodes=[node])
