"""Floor 2. The asynchronous dispatcher: blocks, issues, runs and finishes ops.

The protocol is in DESIGN.md beside this file. Locks are taken in one order: a timeline's
`issue_lock`, then `plan.LOCK`; user code and driver calls run without `plan.LOCK`.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING

from cudasync.engine import current, plan
from cudasync.engine.ledger import Ledger, poison, unblock
from cudasync.engine.op import Op, OpKind
from cudasync.engine.streams import DeviceStreams
from cudasync.engine.suspects import HARMLESS, suspect
from cudasync.engine.workers import WorkerPool, current_pool
from cudasync.errors import ClosedError, CudaError, CudasyncError, DeadlockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cudasync.driver import Device
    from cudasync.engine.events import PooledEvent
    from cudasync.engine.failure import Failure
    from cudasync.engine.timeline import Timeline

# A push asks the driver how far a stream has come once in this many issues to it, so that
# finished ops do not pile up in a program that never waits.
POLL_EVERY = 32
# With more than this in flight on one stream, its watcher waits for the middle one: a device that
# makes no progress unless someone waits for it is then driven along.
MOST_UNASKED = 256


class Dispatcher:
    """Runs ops on streams and workers as soon as what they depend on allows."""

    def __init__(
        self, ledger: Ledger, *, pools: Mapping[str, int], streams: int, tracing: bool
    ) -> None:
        self._ledger = ledger
        self._streams_per_device = streams
        self._tracing = tracing
        self._devices: dict[int, DeviceStreams] = {}
        self._pools = {name: WorkerPool(name, size, self._run) for name, size in pools.items()}

    @property
    def pool_names(self) -> tuple[str, ...]:
        return tuple(self._pools)

    def submit(self, op: Op, accesses: plan.Accesses) -> None:
        """Plan `op` and dispatch it if nothing blocks it. Blocks for nobody."""
        with plan.LOCK:
            dropped = self._ledger.enter(op, accesses)
            watched = []
            for before in op._predecessors:
                if op.kind is not OpKind.HOST and before._is_issued:
                    continue
                before._dependents.append(op)
                op._blockers += 1
                if before.kind is not OpKind.HOST and op.kind is OpKind.HOST:
                    watched.append(before)
            is_ready = op._blockers == 0
        del dropped
        for before in watched:
            before._engine._watch(before)
        if is_ready:
            dispatch([op])
            _pass_on_interrupt(op)

    def abandon(self, op: Op, error: BaseException) -> None:
        """The push of `op` was interrupted: if it has been planned, end it as failed."""
        with plan.LOCK:
            if op.number == 0 or op._is_issued or op._fn is None:
                # Not planned, or it has run: then it ends by itself.
                return
            op._fn = None
            failure = self._ledger.fail(op, error)
            if op._blockers:
                return
        dispatch(self._skip(op, failure))

    def start(self, op: Op) -> list[Op]:
        """Run or issue an op that nothing blocks; return the ops that became ready by it."""
        failure = op.failure or poison(op)
        if failure is not None:
            return self._skip(op, failure)
        if op.kind is OpKind.HOST:
            self._pools[op._pool].put(op)
            return []
        return self._issue(op)

    def _skip(self, op: Op, failure: Failure) -> list[Op]:
        """End an op that will not run, but not before what it had to come after.

        Who overwrites or frees its data later knows of no earlier user of it than this op.
        """
        with plan.LOCK:
            left = [before for before in op._predecessors if not before.finished]
            for before in left:
                before._dependents.append(op)
            op._blockers += len(left)
        for before in left:
            before._engine._watch(before)
        return [] if left else self._ledger.finish(op, failure=failure)

    def watch(self, op: Op) -> None:
        """See to it that `op` finishes without further pushes."""
        with plan.LOCK:
            if op.finished or op.kind is OpKind.HOST or op._is_watched:
                return
            op._is_watched = True
            # An op that is not issued yet is watched when it is.
            if op._timeline is not None:
                op._timeline.watch(op, self._report)

    def query(self, op: Op) -> None:
        """Ask the driver whether an issued op has finished; book it if so."""
        with plan.LOCK:
            event, timeline = op._event, op._timeline
            if op.finished or event is None or timeline is None:
                return
            event.pins += 1
            seq = op._seq
        try:
            is_complete = event.event.query()
        except CudasyncError as error:
            dispatch(self._fault(op, error))
        else:
            if is_complete:
                self._advance(timeline, seq)
        finally:
            with plan.LOCK:
                event.unpin()

    @contextmanager
    def blocking(self, op: Op) -> Iterator[None]:
        """Around a wait for `op`: a worker that waits is stood in for meanwhile."""
        for mine in current.inside():
            if _comes_after(op, mine):
                raise DeadlockError(
                    f"op {mine.name!r} waits for op {op.name!r}, which can only end after it"
                )
        pool = current_pool()
        with nullcontext() if pool is None else pool.blocked():
            yield

    def is_worker(self) -> bool:
        pool = current_pool()
        return pool is not None and pool is self._pools.get(pool.name)

    def heal(self) -> None:
        """Give up the streams of devices that faulted, so that new ones are made after a reset."""
        with plan.LOCK:
            ordinals = [o for o, d in self._devices.items() if d.fault is not None]
            dead = [self._devices.pop(ordinal) for ordinal in ordinals]
        for device in dead:
            # Their watchers are threads, which would stay.
            device.close()

    def close(self) -> None:
        """End workers and streams; the caller has waited for the ops."""
        for pool in self._pools.values():
            pool.close()
        with plan.LOCK:
            devices, self._devices = list(self._devices.values()), {}
        for device in devices:
            device.close()

    def _streams(self, device: Device) -> DeviceStreams:
        """The streams of a device, made at the first need and after each reset of the device."""
        with plan.LOCK:
            found = self._devices.get(device.ordinal)
            if found is not None and not found.is_gone:
                return found
            fresh = DeviceStreams(
                device,
                streams=self._streams_per_device,
                timing=self._tracing,
                statistics=self._ledger.statistics,
            )
            self._devices[device.ordinal] = fresh
        if found is not None:
            self._abandon(found)
        return fresh

    def _abandon(self, device: DeviceStreams) -> None:
        """A reset ended these streams, and whatever was still on them."""
        error = ClosedError(f"device {device.device.ordinal} was reset while the op was in flight")
        with plan.LOCK:
            lost = [op for timeline in device.timelines for op in timeline.in_flight]
        for op in lost:
            dispatch(self._fault(op, error))
        device.close()

    def _issue(self, op: Op) -> list[Op]:
        """Enqueue a device op on a stream; return the ops that became ready by it."""
        assert op._device is not None
        device = self._streams(op._device)
        with plan.LOCK:
            fault = device.fault
            timeline = device.choose(op)
            timeline.reserved += 1
        try:
            if fault is not None and not fault.cleared:
                return self._skip(op, fault)
            with timeline.issue_lock:
                ready = self._enqueue(op, device, timeline)
            # Not under the issue lock: what a poll finds finished may entail issues elsewhere.
            self._poll(timeline)
            return ready
        except CudasyncError as error:
            return self._fault(op, error)
        finally:
            with plan.LOCK:
                timeline.reserved -= 1

    def _enqueue(self, op: Op, device: DeviceStreams, timeline: Timeline) -> list[Op]:
        """The driver calls of an issue. The caller holds the timeline's issue lock."""
        fn = op._fn
        assert fn is not None
        stream = timeline.stream
        for event in self._waits(op, timeline):
            stream.wait(event.event)
            with plan.LOCK:
                event.unpin()
        if self._ledger.recorder is not None:
            self._ledger.recorder.issuing(op, stream, device.events)
        try:
            with current.running(op):
                op._result = fn(stream)
        except BaseException as error:
            if isinstance(error, CudaError) and error.sticky:
                raise
            # What it had enqueued before is on the stream: so the op still gets its point, and
            # whoever overwrites or frees its data still waits for it.
            self._ledger.fail(op, error)
        event = device.events.take()
        stream.record(event.event)
        with plan.LOCK:
            statistics = self._ledger.statistics
            statistics.streams_used += timeline.issued == 0
            statistics.events_recorded += 1
            timeline.issued += 1
            op._timeline, op._seq, op._event = timeline, timeline.issued, event
            op._clock = timeline.clock
            timeline.in_flight.append(op)
            op._is_issued = True
            op._fn = None
            ready = unblock(op, was_issued=True)
            if op._is_watched or op._dependents:
                op._is_watched = True
                timeline.watch(op, self._report)
        return ready

    def _poll(self, timeline: Timeline) -> None:
        """Every so often, ask how far the stream has come."""
        with plan.LOCK:
            if timeline.issued % POLL_EVERY or not timeline.in_flight:
                return
            polled = timeline.in_flight[len(timeline.in_flight) // 2]
        self.query(polled)
        if timeline.load > MOST_UNASKED:
            self.watch(polled)

    def _waits(self, op: Op, timeline: Timeline) -> list[PooledEvent]:
        """The events that `timeline` has to wait for before `op`, pinned."""
        events = []
        statistics = self._ledger.statistics
        with plan.LOCK:
            # Youngest first: what it came after need not be waited for again.
            for before in sorted(op._predecessors, key=_number, reverse=True):
                if before._timeline is None or before._event is None or before._timeline.is_gone:
                    statistics.waits_elided += before.kind is not OpKind.HOST
                elif timeline.is_behind(before._timeline, before._seq):
                    statistics.waits_elided += 1
                else:
                    before._event.pins += 1
                    events.append(before._event)
                    timeline.learn(before)
                    statistics.waits += 1
        return events

    def _run(self, op: Op, worker: str) -> None:
        """Run a host op; called by a worker."""
        with plan.LOCK:
            fn, op._fn = op._fn, None
        if fn is None:
            # Its push was interrupted, and the op abandoned.
            return
        start = time.perf_counter()
        result = failure = None
        try:
            with current.use(op._engine), current.running(op):
                result = fn()
        except BaseException as error:
            failure = self._ledger.fail(op, error)
        del fn
        if failure is None and self._ledger.recorder is not None:
            self._ledger.recorder.ran(op, worker, start)
        ready = self._ledger.finish(op, result=result, failure=failure)
        del op, result
        dispatch(ready)

    def _report(self, op: Op, event: PooledEvent, error: CudasyncError | None) -> None:
        """What a watcher found out about `op`."""
        with plan.LOCK:
            event.unpin()
            timeline, seq = op._timeline, op._seq
        if error is not None:
            dispatch(self._fault(op, error))
        elif timeline is not None:
            self._advance(timeline, seq)

    def _advance(self, timeline: Timeline, seq: int) -> None:
        """Everything on `timeline` up to `seq` has completed: finish it."""
        reached = []
        with plan.LOCK:
            timeline.finished = max(timeline.finished, seq)
            while timeline.in_flight and timeline.in_flight[0]._seq <= seq:
                reached.append(timeline.in_flight.popleft())
        ready: list[Op] = []
        for op in reached:
            if self._ledger.recorder is not None:
                self._ledger.recorder.reached(op, timeline, timeline.device)
            ready += self._ledger.finish(op, result=op._result)
        dispatch(ready)

    def _fault(self, op: Op, error: CudasyncError) -> list[Op]:
        """The driver failed at `op`. If its context is dead, so is all that is in flight on it."""
        assert op._device is not None
        if op.finished:
            return []
        if isinstance(error, ClosedError) and op.kind in HARMLESS:
            # The memory went with the device's reset, which is all that was asked for.
            return self._ledger.finish(op)
        if not (isinstance(error, CudaError) and error.sticky):
            failure = self._ledger.fail(op, error)
            if not op._is_issued:
                return self._skip(op, failure)
            return self._ledger.finish(op, failure=failure)
        device = self._streams(op._device)
        with plan.LOCK:
            flights = [list(t.in_flight) for t in device.timelines]
            for timeline in device.timelines:
                timeline.in_flight.clear()
        if device.fault is None or device.fault.cleared:
            culprit, suspects = suspect(flights, op, error)
            device.fault = self._ledger.fail(culprit, error, suspects)
        ready = []
        for victim in dict.fromkeys([*chain(*flights), op]):
            ready += self._ledger.finish(victim, failure=device.fault)
        return ready


def dispatch(ready: list[Op]) -> None:
    """Start these ops, and the ones that become ready by it, of whichever engine they are."""
    work = deque(ready)
    while work:
        op = work.popleft()
        work.extend(op._engine._start(op))


def _pass_on_interrupt(op: Op) -> None:
    """If the function of `op` was ended by Ctrl-C or the like here, inside its push, go on with it.

    The op has failed like any other; but the thread that pushed it is the one that was meant.
    """
    failure = op.failure
    if failure is None or isinstance(failure.cause, Exception):
        return
    if failure.op_number == op.number:
        raise failure.cause


def _comes_after(op: Op, other: Op) -> bool:
    """True if `op` is `other`, or has to wait for it as planned."""
    with plan.LOCK:
        found = {op}
        todo = [op]
        while todo:
            each = todo.pop()
            if each is other:
                return not other.finished
            # A predecessor has a smaller number: what is older than `other` is not behind it.
            later = {o for o in each._predecessors if o.number >= other.number} - found
            found |= later
            todo += later
    return False


def _number(op: Op) -> int:
    return op.number
