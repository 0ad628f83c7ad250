"""Floor 2. The serial dispatcher: every op runs to its end when it is pushed, in push order.

The oracle that the asynchronous engine is compared with, and the first thing to try when a
program misbehaves. An op that is pushed by an op comes after it, as it would in the push
order; if the outer op waits for it, it runs then, unless it needs what the outer op writes.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cudasync.driver import Stream
from cudasync.engine import current, plan
from cudasync.engine.ledger import Ledger, poison
from cudasync.engine.op import Op, OpKind
from cudasync.errors import DeadlockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cudasync.driver import Device


class SerialDispatcher:
    """Runs each op on the thread that pushes it, device ops on one stream per device."""

    def __init__(self, ledger: Ledger, *, pools: Mapping[str, int]) -> None:
        self._ledger = ledger
        # Held by the thread whose turn it is, from the push until all it entails has run.
        self._turn = threading.RLock()
        self._queue: deque[Op] = deque()
        self._running: list[Op] = []
        self._streams: dict[int, Stream] = {}
        self.pool_names = tuple(pools)

    def submit(self, op: Op, accesses: plan.Accesses) -> None:
        with self._turn:
            with plan.LOCK:
                dropped = self._ledger.enter(op, accesses)
            del dropped
            self._queue.append(op)
            if not self._running:
                while self._queue:
                    self._run_next()

    def abandon(self, op: Op, error: BaseException) -> None:
        """The push of `op` was interrupted: if it has been planned, end it as failed."""
        with plan.LOCK:
            if op.number == 0 or op in self._running:
                return
            if op in self._queue:
                self._queue.remove(op)
        self._ledger.finish(op, failure=self._ledger.fail(op, error))

    def start(self, op: Op) -> list[Op]:
        raise AssertionError(f"{op!r} was blocked on a serial engine")

    def watch(self, op: Op) -> None:
        pass

    def query(self, op: Op) -> None:
        pass

    def is_worker(self) -> bool:
        return bool(self._running)

    @contextmanager
    def blocking(self, op: Op) -> Iterator[None]:
        """Around a wait for `op`: if it is still queued behind a running op, it has to run now."""
        with self._turn:
            while not op.finished and op in self._queue:
                self._run_next()
            if op in self._running:
                raise DeadlockError(f"op {op.name!r} waits for itself on a serial engine")
        yield

    def heal(self) -> None:
        self._streams.clear()

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _run_next(self) -> None:
        """Run the oldest queued op; it stays queued if it needs one that runs right now."""
        op = self._queue[0]
        for before in op._predecessors:
            if before in self._running:
                raise DeadlockError(
                    f"op {before.name!r} waits for op {op.name!r}, which can only run after it"
                )
            # Only an op of another engine can be unfinished here.
            before._wait_finished(None)
        self._queue.popleft()
        failure = poison(op)
        if failure is not None:
            self._ledger.finish(op, failure=failure)
            return
        self._running.append(op)
        result = None
        try:
            with current.use(op._engine):
                result = self._call(op)
        except BaseException as error:
            failure = self._ledger.fail(op, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._running.pop()
            self._ledger.finish(op, result=result, failure=failure)

    def _call(self, op: Op) -> Any:
        assert op._fn is not None
        if op.kind is OpKind.HOST:
            return op._fn()
        assert op._device is not None
        stream = self._stream(op._device)
        result = op._fn(stream)
        stream.synchronize()
        return result

    def _stream(self, device: Device) -> Stream:
        stream = self._streams.get(device.ordinal)
        # A reset of the device closes its streams.
        if stream is None or stream.is_closed:
            stream = self._streams[device.ordinal] = Stream(device)
            self._ledger.statistics.streams_used += 1
        return stream
