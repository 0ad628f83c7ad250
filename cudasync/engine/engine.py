"""Floor 2. The engine: push ops, it works out the rest.

`Engine` is the public door. What an op touches is resolved here, where it runs and when is the
dispatcher's; what it did is in the ledger.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from cudasync.driver import Device
from cudasync.engine import current, plan
from cudasync.engine.dispatch import Dispatcher
from cudasync.engine.ledger import Ledger
from cudasync.engine.op import Op, OpKind
from cudasync.engine.serial import SerialDispatcher
from cudasync.engine.variable import resolve
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from cudasync.engine.trace import Statistics, TraceEntry

Mode = Literal["async", "serial"]
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """Runs ops as soon as what they read and write allows; the result is as if run in turn.

    `mode` is "async", or "serial" to run each op to its end inside `push`; left out, it is what
    CUDASYNC_ENGINE says, else "async". `workers` threads run host ops (default: one per core);
    `pools` names further pools, for ops that block: `pools={"io": 16}`. With `max_in_flight`, a
    push waits while that many ops are unfinished. `streams` is how many streams kernels may use
    on each device. `trace=True` records when and where each op ran.

    Any number of threads may push. As a context manager it is the current engine inside; leaving
    waits for all of its ops, closes it, and raises the first failure unless another exception is
    on its way.
    """

    def __init__(
        self,
        mode: Mode | None = None,
        *,
        workers: int | None = None,
        pools: Mapping[str, int] | None = None,
        max_in_flight: int | None = None,
        streams: int = 4,
        trace: bool = False,
    ) -> None:
        chosen = mode if mode is not None else os.environ.get("CUDASYNC_ENGINE") or "async"
        if chosen not in ("async", "serial"):
            raise ValueError(f"an engine is 'async' or 'serial', not {chosen!r}")
        sizes = {"compute": os.cpu_count() or 1 if workers is None else workers, **(pools or {})}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"worker pool {name!r} needs at least 1 worker, not {size}")
        if streams < 1:
            raise ValueError(f"streams must be at least 1, not {streams}")
        if max_in_flight is not None and max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")
        self.mode = chosen
        self._ledger = Ledger(trace=trace)
        self._dispatcher: Dispatcher | SerialDispatcher
        if chosen == "serial":
            self._dispatcher = SerialDispatcher(self._ledger, pools=sizes)
        else:
            self._dispatcher = Dispatcher(self._ledger, pools=sizes, streams=streams, tracing=trace)
        self._max_in_flight = max_in_flight
        self._is_closed = False
        self._scope: AbstractContextManager[Engine] | None = None
        _engines.add(self)

    def push(
        self,
        fn: Callable[..., Any],
        *,
        reads: Any = (),
        writes: Any = (),
        name: str | None = None,
        priority: int = 0,
        device: Device | None = None,
        pool: str | None = None,
    ) -> Op:
        """Push an op: `fn()` on a host worker, or with `device=`, `fn(stream)` that enqueues work.

        `reads` and `writes` take variables, device arrays and views, and NumPy arrays, one or a
        sequence. What is in both is read, then written; what is in `writes` alone is
        overwritten, so the op does not need its old value and runs even if that is
        poisoned. Larger `priority` goes first among ops that are ready. `pool` names the worker
        pool of a host op.

        Returns at once (except for `max_in_flight`, and on a serial engine). Errors of `fn` are
        raised by whoever waits. Raises TypeError and ValueError for wrong arguments, ClosedError
        after `close`.
        """
        if not callable(fn):
            raise TypeError(f"an op needs a function, not {type(fn).__name__}")
        if device is not None and pool is not None:
            raise ValueError("pool= is for host ops; a device op runs on a stream")
        if device is not None and not isinstance(device, Device):
            raise TypeError(f"device= takes a Device, not {type(device).__name__}")
        if pool is not None and pool not in self._dispatcher.pool_names:
            known = ", ".join(map(repr, self._dispatcher.pool_names))
            raise ValueError(f"there is no worker pool {pool!r}; this engine has {known}")
        return self._push(
            fn,
            OpKind.HOST if device is None else OpKind.KERNEL,
            reads=reads,
            writes=writes,
            name=name if name is not None else getattr(fn, "__name__", type(fn).__name__),
            priority=priority,
            device=device,
            pool=pool or "compute",
        )

    def _push(
        self,
        fn: Callable[..., Any],
        kind: OpKind,
        *,
        reads: Any = (),
        writes: Any = (),
        name: str,
        priority: int = 0,
        device: Device | None = None,
        pool: str = "compute",
        kernel: str = "",
    ) -> Op:
        """The push of the floors above, which know what kind of work it is."""
        if self._is_closed:
            raise ClosedError("the engine was closed; make a new one")
        accesses = plan.Accesses(resolve(reads, "reads"), resolve(writes, "writes"))
        op = Op(
            self, fn, kind, name, device=device, priority=priority, pool=pool, site=_push_site()
        )
        op._kernel = kernel
        op._is_nested = self._dispatcher.is_worker()
        # What an op pushes is not held back: the op may be the very one to wait for.
        if self._max_in_flight is not None and not op._is_nested and not current.inside():
            self._hold_back(self._max_in_flight)
        try:
            self._dispatcher.submit(op, accesses)
        except BaseException as error:
            # Ctrl-C in the middle of it: nobody will ever hold this op, so it must not be left to
            # be waited for.
            self._dispatcher.abandon(op, error)
            raise
        return op

    def waitall(self, timeout: float | None = None) -> None:
        """Block until every op pushed so far has finished.

        Raises the `OpError` of the first failure that was not cleared, and TimeoutError when
        `timeout` seconds have passed first.
        """
        self._drain(timeout)
        failure = self._ledger.first_failure()
        if failure is not None:
            raise failure.error()

    def clear_errors(self) -> None:
        """Wait for all ops, then forget every failure: what was poisoned is usable again.

        Data that a failed op should have written holds what it held. After a device fault, call
        `Device.reset()` as well; arrays of that device are lost.
        """
        self._drain(None)
        self._ledger.clear_failures()
        self._dispatcher.heal()

    def statistics(self) -> Statistics:
        """Counts of ops, events and waits since the engine was made."""
        return self._ledger.statistics

    def trace(self) -> list[TraceEntry]:
        """What ran where and when, in order of completion; waits for all ops first.

        Raises ValueError unless the engine was made with `trace=True`.
        """
        if self._ledger.recorder is None:
            raise ValueError("this engine keeps no trace; make it with Engine(trace=True)")
        self._drain(None)
        return list(self._ledger.recorder.entries)

    def close(self) -> None:
        """Wait for all ops and end the workers and streams. Failures are not raised here.

        Closing twice is harmless.
        """
        if self._is_closed:
            return
        self._drain(None)
        with plan.LOCK:
            # Under the lock, so that an op is either planned by now, and waited for, or refused.
            self._is_closed = self._ledger.is_closed = True
        self._drain(None)
        self._dispatcher.close()
        _engines.discard(self)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def __enter__(self) -> Engine:
        if self._is_closed:
            raise ClosedError("the engine was closed; make a new one")
        self._scope = current.use(self)
        return self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._scope is not None
        self._scope.__exit__(kind, error, traceback)
        self.close()
        failure = self._ledger.first_failure()
        if failure is not None and error is None:
            raise failure.error()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._ledger.unfinished)} ops unfinished"
        return f"<Engine {self.mode} {state}>"

    def _drain(self, timeout: float | None) -> None:
        """Wait until every op pushed so far, and what these push, has finished, failed or not."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with plan.LOCK:
            ops = list(self._ledger.unfinished)
        while ops:
            # Youngest first: when it has finished, so has what came before it on its stream.
            for op in reversed(ops):
                op._wait_finished(
                    None if deadline is None else max(0.0, deadline - time.monotonic())
                )
            with plan.LOCK:
                ops = [op for op in self._ledger.unfinished if op._is_nested]

    def _hold_back(self, limit: int) -> None:
        """Back-pressure: wait while `limit` ops are unfinished."""
        while len(self._ledger.unfinished) >= limit:
            with plan.LOCK:
                oldest = next(iter(self._ledger.unfinished), None)
            if oldest is not None:
                oldest._wait_finished(None)

    # What ops ask of their engine.

    def _start(self, op: Op) -> list[Op]:
        return self._dispatcher.start(op)

    def _watch(self, op: Op) -> None:
        self._dispatcher.watch(op)

    def _query(self, op: Op) -> None:
        self._dispatcher.query(op)

    def _blocking(self, op: Op) -> AbstractContextManager[None]:
        return self._dispatcher.blocking(op)


def engine() -> Engine:
    """The current engine: of the innermost `with`, else one for the whole process."""
    return current.get(Engine)


def use(engine: Engine) -> AbstractContextManager[Engine]:
    """Make `engine` current inside a `with` block, without closing it at the end."""
    return current.use(engine)


def waitall(timeout: float | None = None) -> None:
    """`Engine.waitall` of the current engine."""
    engine().waitall(timeout)


def _push_site() -> tuple[str, int]:
    """File and line of the first caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@atexit.register
def _close_all() -> None:
    """Let work in flight finish before the interpreter goes."""
    for each in list(_engines):
        # Nobody is left to be told.
        with suppress(Exception):
            each.close()


def _orphan_all() -> None:
    """In a forked child: its engines have no threads, so they are closed. It may make new ones."""
    for each in list(_engines):
        each._is_closed = True
        each._ledger.orphan()
    _engines.clear()
    current.forget()
    plan.LOCK.release()


if hasattr(os, "register_at_fork"):
    # Nobody is in the middle of planning when the child begins.
    os.register_at_fork(
        before=plan.LOCK.acquire,
        after_in_parent=plan.LOCK.release,
        after_in_child=_orphan_all,
    )
