"""Floor 2. The end of an engine after Ctrl-C, after an exception, or with unfinished work.

Leaving an engine waits for its ops: after Ctrl-C for a second, after an exception as long as ops
end. Work that then still runs is stopped if the driver can stop it, else abandoned: Python cannot
end a thread, and nobody can end a kernel on a real GPU. One line on stderr reports the outcome.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from enum import Enum, unique
from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions.kernel_stop import stop_kernels
from cudasync.engine.lifecycle import closing, fork_and_exit, unhandled
from cudasync.engine.log import fences
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import OpKind
from cudasync.engine.op_classes import DataFence
from cudasync.errors import ClosedError, CudaError, UnhandledFailureWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device
    from cudasync.engine.device.issue import Issuer
    from cudasync.engine.device.timeline import Timeline
    from cudasync.engine.engine import Engine
    from cudasync.engine.failure import Failure
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp

# How long work may continue without any op ending: in general, and at the program's end.
GRACE_S = 1.0
_PATIENCE_S = 2.0
# The interval of the checks.
_LOOK_S = 0.05
# How often kernels are stopped before they are abandoned, and the pause between two attempts.
_MOST_ATTEMPTS = 4
_AGAIN_S = 0.3
# CUDA_ERROR_LAUNCH_TIMEOUT
_TIMEOUT = 702


@unique
class Cause(Enum):
    """Why the engine is left: the beginning of the line on stderr."""

    END = "the program has ended"
    ERROR = "left by an exception"
    INTERRUPT = "left by Ctrl-C"


def leave(engine: Engine, error: type[BaseException] | None, *, of_block: bool = False) -> None:
    """Wait for the ops of `engine`, with a limit that depends on `error`, and close it.

    With `of_block` a `with` block ends, perhaps by `error`.
    """
    cause = Cause.END
    if error is not None and issubclass(error, KeyboardInterrupt):
        cause = Cause.INTERRUPT
    elif error is not None and issubclass(error, Exception):
        cause = Cause.ERROR
    if engine._serial is not None or (of_block and cause is Cause.END):
        closing.end(engine)
        return
    issuer: Any = engine._issuer
    if cause is Cause.INTERRUPT:
        waiting = _not_begun(engine)
        fork_and_exit.drop(engine)
    else:
        waiting = []
    leave = _Leave(engine, issuer, cause)
    is_over = wait_looking(engine, leave.look)
    if is_over:
        closing.end(engine)
    else:
        fork_and_exit.abandon(engine)
    parts = leave.outcomes()
    dropped = sum(_is_dropped(op) for op in waiting)
    if dropped:
        parts.append(
            f"{dropped} ops that had not begun were dropped"
            if dropped > 1
            else "an op that had not begun was dropped"
        )
    if parts:
        _say(cause, parts)


def leave_block(engine: Engine, error: BaseException | None) -> None:
    """The `with` block of `engine` is left, by `error` or by its end.

    The first failure that nobody was told of is raised, the others are reported. If a filter turns
    such warnings into errors, they become notes, since only one exception can leave the block.
    """
    leave(engine, None if error is None else type(error), of_block=True)
    left = engine._failures.take()
    raised = left.pop(0).error() if left and error is None else None
    try:
        unhandled.report(left)
    except UnhandledFailureWarning as warning:
        told = error or raised
        if told is None:
            raise
        for each in (str(warning), *getattr(warning, "__notes__", ())):
            told.add_note(each)
    finally:
        engine._failures.let_go()
    if raised is not None:
        raise raised


def wait_looking(engine: Engine, look: Callable[[], bool]) -> bool:
    """Wait for all ops pushed so far and ops that these push; False once `look()` is False."""
    while True:
        nested = engine._nested.taken
        fence = fences.fence(engine)
        while not engine._wait_for(fence, time.monotonic() + _LOOK_S):
            if not look():
                return False
        if engine._nested.taken == nested:
            return True


def in_flight(issuer: Issuer) -> list[tuple[DeviceOp, Timeline]]:
    """The ops on streams that are not known to be over, with their streams."""
    found = [(op, t) for t in _timelines(issuer) for op in list(t.in_flight.values())]
    return [(op, timeline) for op, timeline in found if not op.finished]


def _heads(flying: list[tuple[DeviceOp, Timeline]]) -> list[tuple[DeviceOp, Timeline]]:
    """The first op of each stream."""
    firsts: dict[Timeline, DeviceOp] = {}
    for op, timeline in flying:
        firsts.setdefault(timeline, op)
    return [(op, timeline) for timeline, op in firsts.items()]


def _timelines(issuer: Issuer) -> list[Timeline]:
    return [t for device in list(issuer.devices.values()) for t in device.timelines]


def named(op: Op) -> str:
    return _named(op.name, op.push_site)


def _named(name: str, push_site: str) -> str:
    return f"op {name!r}, pushed at {push_site},"


class _Leave:
    """One wait at the end: its time without progress, and the ops that it stopped."""

    def __init__(self, engine: Engine, issuer: Issuer, cause: Cause) -> None:
        self._engine = engine
        self._issuer = issuer
        self._cause = cause
        self._seen = self._progress()
        self._since = time.monotonic()
        self._has_said = False
        # The streams of the ops that were in flight, by op number.
        self._places = {op.number: timeline.name for op, timeline in in_flight(issuer)}
        self._known = set(engine._failures.all())
        self._attempts = 0
        self._left: list[str] = []

    def look(self) -> bool:
        """Called repeatedly during the wait; returns False to give up."""
        now, progress = time.monotonic(), self._progress()
        if progress != self._seen and self._cause is not Cause.INTERRUPT:
            self._seen, self._since = progress, now
        allowed_s = _PATIENCE_S if self._cause is Cause.END else GRACE_S
        if now - self._since < (_AGAIN_S if self._attempts else allowed_s):
            return True
        self._since = now
        # Else an op may be named that is over: a wait asks for the last op of each stream.
        self._issuer.look()
        flying, running = _heads(in_flight(self._issuer)), self._running()
        if self._cause is Cause.END or (self._cause is Cause.ERROR and running):
            self._say_what_is_awaited(flying)
            return True
        if flying and self._attempts < _MOST_ATTEMPTS:
            # A kernel that is being compiled, or is behind another, is stopped once it runs.
            self._attempts += 1
            self._places |= {op.number: timeline.name for op, timeline in flying}
            devices = dict.fromkeys(timeline.device for _, timeline in flying)
            if all(list(map(self._stop, devices))):
                return True
        self._left = [f"{named(op)} still ran on worker {where}" for op, where in running]
        self._left += [
            f"{named(op)} still ran on {timeline.name}: cudasync cannot stop it"
            for op, timeline in flying
        ]
        return False

    def outcomes(self) -> list[str]:
        """The outcomes of the ops that had not ended in time."""
        # After Ctrl-C, the driver may also have stopped a kernel by itself.
        stopped = []
        for failure in self._engine._failures.all():
            if failure not in self._known and (report := _report(failure)):
                # The line on stderr reports it.
                failure.handle()
                stopped.append(
                    f"{_named(failure.op_name, failure.push_site)} was stopped on "
                    f"{self._places.get(failure.op_number, 'its stream')}: {report}"
                )
        return [*stopped, *self._left]

    def _stop(self, device: Device) -> bool:
        return stop_kernels(device, self._cause.value)

    def _say_what_is_awaited(self, flying: list[tuple[DeviceOp, Timeline]]) -> None:
        if flying and not self._has_said:
            self._has_said = True
            parts = [f"{named(op)} runs on {timeline.name}" for op, timeline in flying]
            _say(self._cause, [*parts, "waiting for it; Ctrl-C ends the wait"])

    def _running(self) -> list[tuple[Op, str]]:
        pools = dict.fromkeys(list(self._engine._pools.values()))
        workers = [worker for pool in pools for worker in list(pool.workers)]
        found = [(worker.op, worker) for worker in workers if worker.is_in_op]
        return [(op, worker.name.removeprefix("worker ")) for op, worker in found if op is not None]

    def _progress(self) -> object:
        engine = self._engine
        counters = engine._ledger.counters
        return (
            engine._ran,
            counters.failed_ops.taken,
            sum(timeline.finished for timeline in _timelines(self._issuer)),
        )


def _report(failure: Failure) -> str:
    """The driver's report on a stopped kernel; "" if it failed otherwise."""
    cause = failure.cause
    return cause.hint if isinstance(cause, CudaError) and cause.code == _TIMEOUT else ""


def _not_begun(engine: Engine) -> list[Op]:
    """The ops of `engine` that seem not to have begun."""
    ops = [*COMBINER.left_in_log(), *list(engine._registered)]
    return [
        op
        for op in dict.fromkeys(ops)
        if op._engine is engine and not op.finished and not op._claims and _is_users(op)
    ]


def _is_users(op: Op) -> bool:
    return not isinstance(op, DataFence) and op.kind is not OpKind.FREE


def _is_dropped(op: Op) -> bool:
    if not op.finished:
        return not op._claims
    return op.failure is not None and isinstance(op.failure.cause, ClosedError)


def _say(cause: Cause, parts: list[str]) -> None:
    # stderr may be closed.
    with suppress(Exception):
        sys.stderr.write(f"cudasync: {cause.value}: {'; '.join(parts)}\n")
        sys.stderr.flush()
