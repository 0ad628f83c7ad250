"""Floor 2. The serial dispatcher: every op runs to its end inside its push, in push order.

It is the oracle for the asynchronous engine, and the first thing to try when a program misbehaves.
An op that an op pushes comes after that op, as in the push order. If the outer op waits for the
inner op, the inner op runs then, unless it needs data that the outer op writes.

One thread at a time has the turn, under a lock: the dispatcher makes no claim to be lock-free. Any
code may push in the middle of a push, as finalisers do. A thread that has the turn queues such an
op behind what it runs.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import TYPE_CHECKING

from cudasync.driver import Stream
from cudasync.driver.extensions import exploration
from cudasync.driver.streams.open_captures import Relaxed
from cudasync.engine import current, waiters
from cudasync.engine.device.attribution import is_harmless
from cudasync.engine.ledger import Ledger, poison
from cudasync.engine.lifecycle.left_ops import left_by_interrupt
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import Op, OpKind, claim, salvaged
from cudasync.engine.op_classes import DataFence, DeviceOp
from cudasync.errors import CudasyncError, DeadlockError
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine
    from cudasync.engine.trace import Tally


class SerialDispatcher:
    """Runs each op on the thread that pushes it, device ops on one stream per device."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        # The number of host ops that ended without failing.
        self.ran = 0
        # Held by the thread that has the turn, from its push until all ops of that push have run.
        self._turn = Lock()
        self._queue: deque[Op] = deque()
        self._running: list[Op] = []
        # The thread that began the last running op; only it has the turn until they have run.
        self._runner = 0
        # The ops in the middle of their push, or of leaving the queue, the latest last.
        self._midway: list[Op] = []
        # By the device's ordinal, and the number of device ops that are in their functions.
        self._streams: dict[tuple[int, int], Stream] = {}

    def submit(self, op: Op) -> None:
        """Push `op`: plan it, and run it unless another op is running.

        An allocation always runs: it has no predecessors, and its push needs the address.
        """
        is_nested = self._turn.is_held_here()
        with self._turn:
            if not is_nested:
                self._end_left(op._engine)
            depth = len(self._midway)
            try:
                self._midway.append(op)
                COMBINER.log.append(op)
                if op.kind is OpKind.ALLOCATE:
                    COMBINER.plan(op)
                    if not op.finished:
                        # Else it was refused.
                        self._run(op)
                    return
                self._queue.append(op)
            finally:
                del self._midway[depth:]
            COMBINER.plan(op)
            if not is_nested:
                while self._queue:
                    self._run_next()

    def put(self, op: Op) -> None:
        """Ops run in push order, not when they are ready."""

    def query(self, op: Op) -> None:
        """Ops end before their push does."""

    def watch(self, op: Op) -> None:
        """Ops end before their push does."""

    def is_inside(self) -> bool:
        return bool(self._running)

    def is_mine(self) -> bool:
        """True if the calling thread runs an op."""
        return self._runner == get_ident() and bool(self._running)

    @contextmanager
    def blocking(self, op: Op) -> Iterator[None]:
        """Around a wait for `op`: if it is still queued behind a running op, it must run now."""
        is_nested = self._turn.is_held_here()
        with self._turn:
            if not is_nested:
                self._end_left(op._engine)
            while not op.finished and op in self._queue:
                self._run_next()
            while self._queue and not is_nested:
                self._run_next()
            if self._is_lost(op):
                self._end(op, failure=op.failure or left_by_interrupt(op))
            elif not op.finished and not isinstance(op, DataFence):
                raise DeadlockError(
                    f"op {op.name!r} waits for itself on a serial engine: wait outside the op"
                )
        yield

    def end_left(self, engine: Engine) -> None:
        """End or run the ops that Ctrl-C left, unless another thread has the turn."""
        if self._turn.is_held_here():
            return
        try:
            if self._turn.acquire(blocking=False):
                self._end_left(engine)
            if self._turn.is_held_here():
                self._turn.release()
        except BaseException:
            if self._turn.is_held_here():
                self._turn.release()
            raise

    def _end_left(self, engine: Engine) -> None:
        """No op runs, and the caller has the turn: so an interrupted push has left each op that is
        neither over nor queued. It may have begun, or may not. It fails, since a later op may need
        its data. Queued ops have not begun, and run: an op that ended by an exit may have pushed
        them."""
        COMBINER.plan()
        for op in list(engine._registered):
            if not (op.finished or op in self._queue or isinstance(op, DataFence)):
                self._end(op, failure=op.failure or left_by_interrupt(op))
        while self._queue:
            self._run_next()

    def tails(self) -> list[DeviceOp]:
        """Ops end before their push does."""
        return []

    def look(self) -> None:
        """Ops end before their push does."""

    def tallies(self) -> list[Tally]:
        """Its streams count nothing themselves."""
        return []

    def heal(self) -> None:
        self._streams.clear()

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _run_next(self) -> None:
        """Run the oldest queued op; it stays queued if it depends on a running op."""
        # A signal handler that waits may run and take queued ops at any point: hence the looks.
        try:
            op = self._queue[0]
        except IndexError:
            return
        if op.finished:
            # A closed engine has refused it.
            with suppress(ValueError):
                self._queue.remove(op)
            return
        for before in nodes.gate_of(op).before:
            if before in self._queue:
                # A nested push came between the entry of `before` in the log and its queueing.
                self._queue.remove(before)
                self._queue.appendleft(before)
                return
            if before.finished:
                continue
            if self._is_lost(before):
                self._end(before, failure=before.failure or left_by_interrupt(before))
                continue
            if before._engine._serial is self and not isinstance(before, DataFence):
                raise DeadlockError(
                    f"op {before.name!r} waits for op {op.name!r}, which can only run after this "
                    f"wait"
                )
            waiters.wait_for(before, None, caller_raises=False)
        depth = len(self._midway)
        try:
            self._midway.append(op)
            try:
                self._queue.remove(op)
            except ValueError:
                return
            self._run(op)
        finally:
            del self._midway[depth:]

    def _is_lost(self, op: Op) -> bool:
        """True if Ctrl-C ended the push of `op`, or came before it ran: nobody will run it."""
        if op.finished or isinstance(op, DataFence) or op._engine._serial is not self:
            return False
        return not any(op in ops for ops in (self._queue, self._running, self._midway))

    def _run(self, op: Op) -> None:
        """Run an op that nothing blocks."""
        depth = len(self._running)
        failure: Any = None
        fn, has_run = None, False
        # All of it under `try`: Ctrl-C may come at any point.
        try:
            failure = poison(op, nodes.gate_of(op).sources)
            fn = claim(op, get_ident())
            assert fn is not None, "it runs one op at a time"
            if failure is None:
                self._running.append(op)
                self._runner = get_ident()
                with current.using(op._engine):
                    op._result = self._call(op, fn)
                has_run = True
            elif op._salvage is not None:
                with current.using(op._engine):
                    rest = salvaged(op)
                    if rest is not None:
                        self._call(op, rest)
        except BaseException as error:
            has_run = has_run or (isinstance(op, DeviceOp) and is_harmless(op, error))
            if failure is None and not has_run:
                failure = self.ledger.fail(op, error)
            if not isinstance(error, Exception):
                raise
        finally:
            fn = None
            # No call, behind which another Ctrl-C could come: no op may seem to run for ever.
            del self._running[depth:]
            if failure is None and not has_run:
                # Another one came in the handler.
                failure = op.failure or left_by_interrupt(op)
            self._end(op, failure=failure)

    def _end(self, op: Op, *, failure: Any) -> None:
        counters = self.ledger.counters
        if failure is not None:
            op.failure = op.failure or failure
            op._engine._failures.note(failure, op)
            counters.failed_ops.next()
        elif isinstance(op, DeviceOp):
            counters.device_ops.next()
        else:
            self.ran += 1
        nodes.finish(op)

    def _call(self, op: Op, fn: Callable[..., Any]) -> Any:
        recorder = self.ledger.recorder
        if recorder is None:
            return self._enqueue(op, fn)
        start = time.perf_counter()
        result = self._enqueue(op, fn)
        recorder.ran_in_turn(op, start)
        return result

    def _enqueue(self, op: Op, fn: Callable[..., Any]) -> Any:
        if not isinstance(op, DeviceOp):
            return fn()
        stream = self._stream(op._device)
        try:
            if exploration.is_under_way:
                result = exploration.on_behalf(op.push_site, fn, stream)
            else:
                result = fn(stream)
        except BaseException:
            # Work that it enqueued before still runs, and nothing may run beside that work. Errors
            # of that work are dropped: the op has failed already.
            with suppress(CudasyncError), Relaxed():
                stream.synchronize()
            raise
        with Relaxed():
            stream.synchronize()
        return result

    def _stream(self, device: Device) -> Stream:
        # A nested device op must not be behind the outer op's work, since that may wait for it.
        key = device.ordinal, sum(isinstance(each, DeviceOp) for each in self._running)
        stream = self._streams.get(key)
        # A reset of the device closes its streams.
        if stream is None or stream.is_closed:
            stream = self._streams[key] = Stream(device)
            self.ledger.counters.streams_used.next()
        return stream
