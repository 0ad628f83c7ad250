"""Floor 2. One op: a function, what must come before it, and how it ended.

Life: planned, then (device) issued or (host) running, then finished. `finished` is set last and
never taken back; `failure` and the result are written before it. The fields with an underscore
belong to the engine and are written under `plan.LOCK`, except where noted.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

from cudasync.engine import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine
    from cudasync.engine.events import PooledEvent
    from cudasync.engine.failure import Failure
    from cudasync.engine.timeline import Timeline
    from cudasync.errors import OpError


class OpKind(Enum):
    """What an op does, which decides where it runs: each kind of copy has streams of its own."""

    HOST = "host"
    KERNEL = "kernel"
    HTOD = "HtoD"
    DTOH = "DtoH"
    DTOD = "DtoD"
    ALLOCATE = "allocate"
    FREE = "free"


class Op:
    """An operation that was pushed: wait for it, ask whether it is done, take its result."""

    __slots__ = (
        "__weakref__",
        "_blockers",
        "_callbacks",
        "_clock",
        "_dependents",
        "_device",
        "_engine",
        "_event",
        "_fn",
        "_is_issued",
        "_is_nested",
        "_is_watched",
        "_kernel",
        "_pool",
        "_predecessors",
        "_result",
        "_seq",
        "_site",
        "_sources",
        "_timeline",
        "failure",
        "finished",
        "kind",
        "name",
        "number",
        "priority",
    )

    def __init__(
        self,
        engine: Engine,
        fn: Callable[..., Any],
        kind: OpKind,
        name: str,
        *,
        device: Device | None,
        priority: int,
        pool: str,
        site: tuple[str, int],
    ) -> None:
        self.name = name
        self.kind = kind
        self.priority = priority
        # Position in the total order of pushes; 0 until planned.
        self.number = 0
        self.finished = False
        self.failure: Failure | None = None
        self._engine = engine
        self._fn: Callable[..., Any] | None = fn
        self._device = device
        self._pool = pool
        self._site = site
        # The kernel that it launches, where that is known: a device's fault report may name it.
        self._kernel = ""
        self._result: Any = None
        # Ops that must come before this one and had not finished when it was planned.
        self._predecessors: tuple[Op, ...] = ()
        # Writers of what this op reads; if one fails, this op is poisoned.
        self._sources: tuple[Op, ...] = ()
        self._blockers = 0
        self._dependents: list[Op] = []
        self._callbacks: list[Callable[[], None]] = []
        # Pushed by an op: whoever waits for all ops waits for this one too, however late it came.
        self._is_nested = False
        # A device op once issued: the point (timeline, seq), its event, what its stream knew.
        self._is_issued = False
        self._is_watched = False
        self._timeline: Timeline | None = None
        self._seq = 0
        self._event: PooledEvent | None = None
        self._clock: dict[Timeline, int] = {}

    @property
    def push_site(self) -> str:
        """ "file:line" of the push."""
        return f"{self._site[0]}:{self._site[1]}"

    @property
    def is_poisoned(self) -> bool:
        """True if it failed, or read what a failed op wrote, and that was not cleared since."""
        failure = self.failure
        return failure is not None and not failure.cleared

    def done(self) -> bool:
        """True once the op has finished, failed or not. Never blocks; asks the driver once."""
        if not self.finished:
            self._engine._query(self)
        return self.finished

    def wait(self, timeout: float | None = None) -> None:
        """Block until the op has finished.

        Raises `OpError` if it failed or was poisoned, `TimeoutError` when `timeout` seconds have
        passed first (the op goes on), `DeadlockError` if an op's function waits for what can only
        run or end after it.
        """
        self._wait_finished(timeout)
        if self.is_poisoned:
            assert self.failure is not None
            raise self.failure.error()

    def result(self, timeout: float | None = None) -> Any:
        """Wait, then return what the op's function returned. Errors as for `wait`."""
        self.wait(timeout)
        return self._result

    def exception(self, timeout: float | None = None) -> OpError | None:
        """Wait, then return the error that `wait` would raise, None if there is none."""
        self._wait_finished(timeout)
        return self.failure.error() if self.failure is not None and self.is_poisoned else None

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback()` once the op has finished: at once if it has, else on the thread that
        finishes it, where it must not block. An exception of the callback is lost."""
        with plan.LOCK:
            if not self.finished:
                self._callbacks.append(callback)
                callback = _nothing
        with suppress(Exception):
            callback()
        self._engine._watch(self)

    def __await__(self) -> Generator[Any, None, Any]:
        loop = asyncio.get_running_loop()
        finished = loop.create_future()

        def settle() -> None:
            if not finished.done():
                finished.set_result(None)

        def wake() -> None:
            # The loop may be closed by the time the op finishes: then nobody waits any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle)

        self.add_done_callback(wake)
        yield from finished.__await__()
        return self.result()

    def _wait_finished(self, timeout: float | None) -> None:
        if self.finished:
            return
        parked = threading.Event()
        wake = parked.set
        self.add_done_callback(wake)
        try:
            with self._engine._blocking(self):
                if not parked.wait(timeout):
                    raise TimeoutError(f"op {self.name!r} has not finished after {timeout} s")
        finally:
            if not self.finished:
                # Who asks again and again with a timeout must not leave a trail.
                with plan.LOCK:
                    self._callbacks = [c for c in self._callbacks if c is not wake]

    def __repr__(self) -> str:
        if self.finished:
            how = "failed" if self.failure is not None else "finished"
        else:
            how = "issued" if self._is_issued else "planned"
        return f"<Op {self.name!r} {self.kind.value} {how}>"


def _nothing() -> None:
    pass
