"""Floor 2. Issuing device ops: a stream, the waits that are needed, `fn(stream)`, one event.

An op is issued once all its device predecessors are issued and its host predecessors are over.
Driver calls can not be done twice, so one thread claims the op; should it be suspended there,
the op and what depends on it stay, and everything else goes on: others use other streams.

Ops that are ready gather in `READY`; whoever may have made one ready calls `settle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine import completion, current
from cudasync.engine import record as records
from cudasync.engine.ledger import poison
from cudasync.engine.op import DeviceOp, Op
from cudasync.engine.streams import DeviceStreams
from cudasync.engine.timeline import Point
from cudasync.errors import CudaError, CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device
    from cudasync.engine.events import PooledEvent
    from cudasync.engine.ledger import Ledger
    from cudasync.engine.timeline import Timeline

# A dict, so that an op stays in it until it is issued, and may be taken out twice.
READY: dict[DeviceOp, None] = {}
# An issue asks the driver how far its stream has come once in this many, so that finished ops do
# not pile up in a program that never waits.
POLL_EVERY = 32
# With more than this in flight on one stream, its watcher waits for the middle one: a device that
# makes no progress unless someone waits for it is then driven along.
MOST_UNASKED = 256


def settle() -> None:
    """Issue what is ready. Blocks for nobody."""
    while READY:
        for op in list(READY):
            op._issuer.issue(op)
            READY.pop(op, None)


class Issuer:
    """Issues the device ops of one engine."""

    def __init__(
        self, ledger: Ledger, on_device: Callable[[], None], *, streams: int, timing: bool
    ) -> None:
        self.ledger = ledger
        # Called when a device comes into use.
        self._on_device = on_device
        self._streams_per_device = streams
        self._timing = timing
        # By the life of the device's context, which a reset ends.
        self.devices: dict[object, DeviceStreams] = {}

    def put(self, op: Op) -> None:
        """Take an op that is ready. Never blocks."""
        assert isinstance(op, DeviceOp)
        if not op._is_owned:
            READY[op] = None

    def query(self, op: Op) -> None:
        """Ask the driver whether an issued op has finished; book it if so. Never blocks."""
        assert isinstance(op, DeviceOp)
        completion.query(self, op)
        settle()

    def watch(self, op: Op) -> None:
        """See to it that `op` finishes without further pushes, now or once it is issued."""
        assert isinstance(op, DeviceOp)
        if op._is_watched:
            return
        point = op._point
        if point is not None:
            point.timeline.watch(op, point, self.report)
        # Last, since Ctrl-C may keep the watcher from being asked. To ask twice is harmless.
        op._is_watched = True
        if point is None and (point := op._point) is not None:
            # Issued meanwhile, by somebody who looked before this was said.
            point.timeline.watch(op, point, self.report)

    def report(self, op: DeviceOp, point: Point, error: CudasyncError | None) -> None:
        """What a watcher found out about `op`."""
        if error is not None:
            completion.fault(self, op, error)
        else:
            completion.advance(self, point.timeline, point.seq)
        settle()

    def issue(self, op: DeviceOp) -> None:
        """Enqueue an op on a stream, unless another thread does; errors become the op's."""
        fn = None
        try:
            try:
                fn = op._fn
                del op._fn
            except AttributeError:
                return
            self._issue_claimed(op, fn)
        except BaseException as error:
            if fn is None:
                raise
            # A signal, such as Ctrl-C. The op is ours, so it has to end.
            if op._point is None:
                completion.skip(self, op, self.ledger.fail(op, error))
            raise
        failure = op.failure
        if failure is not None and failure.op_number == op.number:
            cause = failure.cause
            if not isinstance(cause, Exception) and not current.is_ours():
                # Ctrl-C inside of `fn`: the op has failed with it like with any other error; but
                # the thread that runs it here is the one that was meant.
                raise cause

    def _issue_claimed(self, op: DeviceOp, fn: Callable[..., Any]) -> None:
        before = records.plan_of(op).before
        device = self.streams_of(op._device)
        failure = op.failure or poison(op)
        if failure is None and device.fault is not None and not device.fault.cleared:
            failure = device.fault
        if failure is not None:
            completion.skip(self, op, failure)
            return
        timeline = device.take(op, before)
        try:
            if before and not self._wait_for(op, before, timeline):
                failure = poison(op)
                if failure is not None:
                    completion.skip(self, op, failure)
                    return
            point = self._enqueue(op, fn, device, timeline)
        except CudasyncError as error:
            completion.fault(self, op, error, device)
            return
        except BaseException as error:
            # What is on the stream by now has to be waited for like what a whole op enqueues.
            self.ledger.fail(op, error)
            point = op._point or self._mark(op, device, timeline)
        finally:
            timeline.give_back()
        record = records.of(op)
        for listener in list(record.issue_listeners):
            listener.told(op)
        if op._is_watched or record.listeners or record.sleepers or record.callbacks:
            timeline.watch(op, point, self.report)
            op._is_watched = True
        if point.seq % POLL_EVERY == 0:
            self._poll(timeline)

    def streams_of(self, device: Device) -> DeviceStreams:
        """The streams of a device, made at the first need and after each reset of the device."""
        token = device.context.token
        found = self.devices.get(token)
        if found is not None:
            return found
        self._on_device()
        fresh = DeviceStreams(
            device,
            token,
            streams=self._streams_per_device,
            timing=self._timing,
            counters=self.ledger.counters,
        )
        made = self.devices.setdefault(token, fresh)
        if made is fresh:
            for each in list(self.devices):
                old = self.devices.get(each)
                if old is not None and old.device is device and old.is_gone:
                    self.devices.pop(each, None)
                    completion.abandon(self, old)
        return made

    def heal(self) -> None:
        """Give up the streams of devices that faulted, so that new ones are made after a reset."""
        for token in list(self.devices):
            device = self.devices.get(token)
            if device is not None and device.fault is not None:
                self.devices.pop(token, None)
                device.close()

    def dismiss(self) -> None:
        """The engine is gone: let the watchers end; the streams go with their last reference."""
        for device in list(self.devices.values()):
            for timeline in device.timelines:
                timeline.dismiss()

    def close(self) -> None:
        """End the streams; the caller has waited for the ops."""
        while self.devices:
            _, device = self.devices.popitem()
            device.close()

    def _enqueue(
        self,
        op: DeviceOp,
        fn: Callable[..., Any],
        device: DeviceStreams,
        timeline: Timeline,
    ) -> Point:
        """The driver calls of an issue. The caller has taken the timeline."""
        stream = timeline.stream
        if self.ledger.recorder is not None:
            self.ledger.recorder.issuing(op, stream, device.events)
        try:
            op._result = current.call(op, fn, stream)
        except BaseException as error:
            if isinstance(error, CudaError) and error.sticky:
                raise
            # What it had enqueued before is on the stream: so the op still gets its point, and
            # whoever overwrites or frees its data still waits for it.
            self.ledger.fail(op, error)
        return self._mark(op, device, timeline)

    def _mark(self, op: DeviceOp, device: DeviceStreams, timeline: Timeline) -> Point:
        """Give `op` its point: what is on the stream now is all of it."""
        event = device.events.take()
        timeline.stream.record(event.event)
        counters = self.ledger.counters
        counters.events_recorded.next()
        if not timeline.issued:
            counters.streams_used.next()
        seq = timeline.issued + 1
        point = Point(timeline, seq, event, timeline.clock)
        timeline.in_flight[seq] = op
        timeline.tail = op
        timeline.issued = seq
        op._point = point
        return point

    def _wait_for(self, op: DeviceOp, before: tuple[Op, ...], timeline: Timeline) -> bool:
        """Have the stream wait for what is needed; False if some of it has failed by now."""
        for each, event in self._waits(before, timeline):
            try:
                timeline.stream.wait(event.event)
            except CudaError as error:
                if not error.sticky or each._device is op._device:
                    raise
                # Its device is lost: nothing runs there any more, and it has failed.
                completion.fault(each._issuer, each, error)
        # Asked last: one that ended without failing, or whose event was waited for, has run.
        return all(each.failure is None for each in before)

    def _waits(
        self, before: tuple[Op, ...], timeline: Timeline
    ) -> list[tuple[DeviceOp, PooledEvent]]:
        """The events that `timeline` has to wait for before an op that comes after `before`."""
        events = []
        counters = self.ledger.counters
        # Youngest first: what it came after need not be waited for again.
        for each in sorted(before, key=_number, reverse=True):
            if not isinstance(each, DeviceOp):
                continue
            point = each._point
            if point is None or point.timeline.is_gone or timeline.is_behind(*point[:2]):
                counters.waits_elided.next()
            else:
                events.append((each, point.event))
                timeline.learn(point)
                counters.waits.next()
        return events

    def _poll(self, timeline: Timeline) -> None:
        """Ask how far the stream has come."""
        middle = timeline.in_flight.get((timeline.finished + timeline.issued) // 2 + 1)
        if middle is not None:
            completion.query(self, middle)
            if timeline.load > MOST_UNASKED:
                self.watch(middle)


def _number(op: Op) -> int:
    return op.number
