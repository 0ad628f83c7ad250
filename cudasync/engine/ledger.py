"""Floor 2. The books of one engine: which ops are unfinished, which failed, how ops finish.

True under `plan.LOCK`: an op is in `unfinished` from its planning until it finishes; it
finishes once; whatever depends on it learns of it exactly once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.engine import current, plan
from cudasync.engine.failure import Failure
from cudasync.engine.op import Op, OpKind
from cudasync.engine.trace import Recorder, Statistics
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Ledger:
    """What an engine remembers of its ops."""

    def __init__(self, *, trace: bool) -> None:
        # In push order; a dict because ops leave from anywhere.
        self.unfinished: dict[Op, None] = {}
        # In the order they showed; a dict because each op that is poisoned looks its own up.
        self.failures: dict[Failure, None] = {}
        # Set once the engine has closed: nothing is planned any more.
        self.is_closed = False
        self.statistics = Statistics()
        self.recorder = Recorder() if trace else None

    def enter(self, op: Op, accesses: plan.Accesses) -> object:
        """Plan `op`. The caller holds the lock, and lets go of what is returned without it.

        Raises ClosedError once the engine has closed.
        """
        if self.is_closed:
            raise ClosedError("the engine was closed; make a new one")
        dropped = plan.plan(op, accesses)
        self.unfinished[op] = None
        self.statistics.ops += 1
        if self.recorder is not None:
            self.recorder.pushed(op)
        return dropped

    def finish(self, op: Op, *, result: Any = None, failure: Failure | None = None) -> list[Op]:
        """End `op`; return the ops that may be dispatched now. Takes the lock, runs callbacks."""
        with plan.LOCK:
            if op.finished:
                return []
            if failure is not None:
                self._fail(op, failure)
            elif op.failure is None:
                op._result = result
                self.statistics.host_ops += op.kind is OpKind.HOST
                self.statistics.device_ops += op.kind is not OpKind.HOST
            op.finished = True
            ready = unblock(op)
            callbacks, op._callbacks = op._callbacks, []
            # In hand until the lock is released: what goes with them may run users' code.
            held = op._fn, op._predecessors, op._sources
            op._fn = None
            op._predecessors = op._sources = ()
            op._clock = {}
            op._timeline = None
            if op._event is not None:
                op._event.unpin()
                op._event = None
            self.unfinished.pop(op, None)
        del held
        for callback in callbacks:
            # Its owner was told that an exception of it is lost.
            with suppress(Exception), current.running(op):
                callback()
        return ready

    def orphan(self) -> None:
        """In a child that was forked: the threads that would have run the ops are not there.

        Nobody is called: what callbacks need may be locked for good.
        """
        self.is_closed = True
        cause = ClosedError("the process was forked: the op runs in the parent only")
        for op in self.unfinished:
            op._callbacks.clear()
            op.failure = op.failure or Failure(op.number, op.name, op.push_site, cause)
            op.finished = True
        self.unfinished.clear()

    def fail(self, op: Op, cause: BaseException, suspects: Sequence[str] = ()) -> Failure:
        """Make `op` a failed op, the root of whatever it poisons; it still has to finish."""
        failure = Failure(op.number, op.name, op.push_site, cause, tuple(suspects))
        with plan.LOCK:
            self._fail(op, failure)
        return failure

    def _fail(self, op: Op, failure: Failure) -> None:
        if op.failure is None:
            self.statistics.failed_ops += 1
            op.failure = failure
            if self.recorder is not None:
                self.recorder.dropped(op)
        self.failures[failure] = None

    def first_failure(self) -> Failure | None:
        """The failure of the op that was pushed first, of those that were not cleared."""
        with plan.LOCK:
            left = [failure for failure in self.failures if not failure.cleared]
            return min(left, key=lambda failure: failure.op_number, default=None)

    def clear_failures(self) -> None:
        with plan.LOCK:
            for failure in self.failures:
                failure.cleared = True
            self.failures.clear()


def unblock(op: Op, *, was_issued: bool = False) -> list[Op]:
    """Tell dependents that `op` has finished, or that it `was_issued` and the driver can wait for
    it from now on. Returns those with no blocker left. The caller holds the lock."""
    ready = []
    blocked = []
    for dependent in op._dependents:
        if was_issued and dependent.kind is OpKind.HOST:
            blocked.append(dependent)
            continue
        dependent._blockers -= 1
        assert dependent._blockers >= 0, "an op was unblocked twice"
        if dependent._blockers == 0:
            ready.append(dependent)
    op._dependents = blocked
    return ready


def poison(op: Op) -> Failure | None:
    """What keeps `op` from running: the failure of a writer of something it reads."""
    for source in op._sources:
        if source.is_poisoned:
            return source.failure
    return None
