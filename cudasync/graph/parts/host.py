"""Floor 3, parts. Host functions of one pool, in a loop or as an op each."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from types import MethodType
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from cudasync.engine import general_push
from cudasync.engine.current import is_of_thread
from cudasync.engine.hazards.damage import Damage
from cudasync.engine.host import repeated_ops
from cudasync.engine.host.run_by_waiter import SHORT_S
from cudasync.engine.log import fences
from cudasync.engine.log.node import origins_of
from cudasync.engine.op import OpKind
from cudasync.graph.node import NodeSite
from cudasync.graph.parts.call_loop import Calls
from cudasync.graph.parts.completion_variables import besides, fail, tell
from cudasync.graph.parts.host_parallelism import Spreading, Trial, noting, urgent_first
from cudasync.graph.parts.single_op import AlonePart
from cudasync.graph.segments import Segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.engine import Engine, Op
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.op import Salvage
    from cudasync.graph.node import Node
    from cudasync.graph.parts.completion_variables import Between
    from cudasync.graph.parts.host_parallelism import Times


class HostPart:
    """Host functions of one pool: a worker calls them in a loop.

    Once launches have shown that it pays (`host_parallelism`), they are ops of their own, for all
    workers of the pool.
    """

    def __init__(self, segment: Segment) -> None:
        nodes = segment.nodes
        # A single chain is taken apart, as separate functions are.
        self.nodes = nodes[0].steps if len(nodes) == 1 and nodes[0].steps else tuple(nodes)
        self._pool = segment.pool
        self._priority = segment.priority
        self.name = segment.name
        # Its parts when it is spread: a chain inside is one op, until its own functions are found
        # to take long.
        self._alone: list[AlonePart | HostPart] = [
            HostPart(_chain(node, segment)) if node.steps else AlonePart(node)
            for node in self.nodes
        ]
        self._steps = tuple(step for node in self.nodes for step in node.steps or (node,))
        # For the loop, which is one op, one variable is enough: that of the first part without
        # writes.
        silent = [over for each in self._alone for over in each.over]
        self._over = tuple(silent[:1])
        regions, read, written = segment.accesses()
        self.accesses = regions, read, (*written, *self._over)
        self.is_spread = self.was_spread = False
        # Set while it is spread by its times, until that has proved worthwhile.
        self._trial: Trial | None = None
        self._spreading = Spreading(self.nodes, is_chain=self.nodes is nodes[0].steps)
        self._calls = Calls([step.fn for step in self._steps])
        self._resolved = repeated_ops.Resolved(self.accesses)
        # An op has it for as long as the data that it wrote: it keeps no node alive.
        self._weak_salvage: Salvage = WeakMethod(self._salvage)

    @property
    def over(self) -> tuple[Var, ...]:
        """Variables that the ops of a launch write besides those of nodes. Ask after the push: it
        may have spread the segment, and `was_spread` never becomes False again."""
        if not self.was_spread:
            return self._over
        return tuple(v for each in self._alone for v in each.over)

    def push(
        self,
        engine: Engine,
        frame: FrameType,
        between: Between | None = None,
        times: Times | None = None,
    ) -> Op:
        """Push the functions. In a loop, `times` gets the loop's start and end."""
        if self.is_spread and self._is_worth_it():
            noted = self._trial.next() if self._trial is not None and between is None else None
            return [each.push(engine, frame, between, noted) for each in self._alone][-1]
        if between is None and engine._is_direct and not self._priority:
            return self._push_loop(engine, frame, times)
        (only_read, updated, written), reads, writes = self.accesses
        also_read, also_written = besides(between)
        return general_push.push(
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

    def _is_worth_it(self) -> bool:
        """False if a trial of spreading failed; the segment is then a loop for good."""
        trial = self._trial
        if trial is not None and trial.has_failed:
            self.is_spread = False
        return self.is_spread

    def push_only(self, engine: Engine, frame: FrameType) -> Op:
        """Push a launch that has no other part; returns an op that is over when the launch is."""
        if not self.is_spread and not self._priority:
            return self._push_loop(engine, frame)
        op = self.push(engine, frame)
        # If it was spread meanwhile, the fence is superfluous but harmless.
        return self._fence(engine) if self.was_spread else op

    def _push_loop(self, engine: Engine, frame: FrameType, times: Times | None = None) -> Op:
        pool = engine._pools[self._pool]
        begin = self._begin if times is None else partial(self._begin_noting, times)
        return repeated_ops.push(engine, begin, self._resolved, self.name, pool, frame)

    def _fence(self, engine: Engine) -> Op:
        (_, updated, written), _, variables = self.accesses
        return fences.behind(engine, [*variables, *self.over], [*updated, *written])

    def _run(self, op: Any) -> None:
        """Call each function, except those that need a failed function's results. Raises the first
        failed function's exception.

        Ctrl-C ends the loop. A failed op has damaged all that it writes, until its whole damage is
        known: so nothing counts as intact that did not run.
        """
        recorder = op._engine._ledger.recorder
        calls, resolved = self._calls, self._resolved
        resolved.is_short = False
        wants_times = self._spreading.wants_times
        if wants_times or (recorder is not None and recorder.times_functions):
            calls = self._timed(op)
        # The iterators know the progress: a counter would cost as much as a call.
        place = calls.begin()
        begun = perf_counter()
        try:
            calls.go(*place)
            took = perf_counter() - begun
            if self._spreading.pays(took, len(calls)) or (wants_times and self._pays(op)):
                # For good, or until a trial fails; concurrent pushes check twice.
                self.was_spread = self.is_spread = True
            resolved.is_short = took < SHORT_S
        except BaseException as error:
            if (at := calls.failed_at(*place, error)) is not None and not is_of_thread(error):
                op._step = self._said_of(at)
                damage = Damage()
                self._fail(at, op, damage)
                self._run_on(at + 1, op, damage)
                op._damage = damage
            raise error from error.__cause__
        finally:
            op = None

    def _pays(self, op: Any) -> bool:
        """True if it should be spread, by the times that a launch has noted."""
        # All functions were called, in their order.
        times = zip(self._steps, op.node_times, strict=True)
        took = {step: end - begin for step, (_, begin, end) in times}
        seconds = {node: sum(took[step] for step in node.steps or (node,)) for node in self.nodes}
        # A serial engine has no workers: one thread runs everything.
        workers = getattr(op._engine._pools[self._pool], "size", 1)
        if not self._spreading.pays_by(seconds, workers):
            return False
        # Workers take ready ops in push order.
        parts = dict(zip(self.nodes, self._alone, strict=True))
        self._alone = [parts[node] for node in urgent_first(self.nodes, seconds)]
        self._trial = Trial(sum(seconds.values()), len(self._alone))
        return True

    def _timed(self, op: Any) -> Calls:
        """The same calls, each noting its start and end for an observer."""
        op.node_times = noted = []

        def timed(step: Node) -> Callable[[], None]:
            site = NodeSite.of(step)

            def call() -> None:
                begun = perf_counter()
                try:
                    step.fn()
                finally:
                    noted.append((site, begun, perf_counter()))

            return call

        return Calls([timed(step) for step in self._steps])

    def _salvage(self, op: Any) -> None:
        """Call each function that needs none of the data that failed before this op."""
        damage = Damage.before(origins_of(op))
        self._run_on(0, op, damage)
        op._damage = damage

    def _run_on(self, first: int, op: Any, damage: Damage) -> None:
        """Call those functions from `first` on that need no damaged data; note the other damage.
        Ctrl-C ends the loop."""
        for at in range(first, len(self._calls)):
            accesses = self._steps[at].hazards
            if not damage.reaches(accesses):
                try:
                    self._calls.functions[at]()
                except BaseException as error:
                    # Only the first failure is raised; this one shows in the damage.
                    if is_of_thread(error):
                        raise
                else:
                    damage.heal(accesses)
                    continue
            self._fail(at, op, damage)

    def _fail(self, at: int, op: Any, damage: Damage) -> None:
        accesses = self._steps[at].hazards
        fail(damage, accesses, self._over)
        tell(damage, op, self.accesses)

    def _bound(self, op: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
        op._salvage = self._weak_salvage
        return MethodType(fn, op)

    def _begin(self, op: Any) -> Callable[..., Any]:
        op._salvage = self._weak_salvage
        return MethodType(self._run, op)

    def _begin_noting(self, times: Times, op: Any) -> Callable[..., Any]:
        return noting(self._begin(op), times, perf_counter)

    def _said_of(self, at: int) -> str:
        return self._steps[at].described

    def raise_if_gone(self) -> None:
        """Host functions have no resources that could be gone."""

    def close(self) -> None:
        """Host functions have no resources to close."""


def _chain(node: Node, around: Segment) -> Segment:
    """A node with steps as a segment by itself."""
    return Segment(None, around.pool, around.priority, is_alone=False, nodes=[node])
