"""Floor 2. Issuing device ops: a stream, the waits that are needed, `fn(stream)`, one event.

An op is issued once all its device predecessors are issued and its host predecessors are over.
Driver calls can not be done twice, so one thread claims the op; should it be suspended there,
the op and what depends on it stay, and everything else goes on: others use other streams.

Ops that are ready gather in `READY`; whoever may have made one ready calls `settle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine import completion, current, refusal
from cudasync.engine import record as records
from cudasync.engine.ledger import poison
from cudasync.engine.op import DeviceOp, Op, OpKind
from cudasync.engine.streams import DeviceStreams
from cudasync.errors import CudaError, CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device, Event
    from cudasync.engine.ledger import Ledger
    from cudasync.engine.timeline import Point, Timeline
    from cudasync.engine.trace import Tally

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
            op._pool.issue(op)
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
            point[0].watch(op, point, self.report)
        # Last, since Ctrl-C may keep the watcher from being asked. To ask twice is harmless.
        op._is_watched = True
        if point is None and (point := op._point) is not None:
            # Issued meanwhile, by somebody who looked before this was said.
            point[0].watch(op, point, self.report)

    def watch_streams(self) -> None:
        """See to it that the next op to finish on each stream is noticed when it does."""
        for device in list(self.devices.values()):
            for timeline in device.timelines:
                for op in list(timeline.in_flight.values())[:1]:
                    self.watch(op)

    def report(self, op: DeviceOp, point: Point, error: CudasyncError | None) -> None:
        """What a watcher found out about `op`."""
        if error is not None:
            completion.fault(self, op, error)
        else:
            completion.advance(self, point[0], point[1])
        settle()

    def issue(self, op: DeviceOp) -> None:
        """Enqueue an op that is ready on a stream, unless another thread does."""
        fn = None
        try:
            try:
                fn = op._fn
                del op._fn
            except AttributeError:
                return
            plan = records.plan_of(op)
            self.carry_out(op, fn, plan.before, plan.sources)
        except BaseException as error:
            if fn is not None:
                self.give_up(op, error)
            raise

    def give_up(self, op: DeviceOp, error: BaseException) -> None:
        """A signal, such as Ctrl-C, came while `op` was ours to issue: so it has to end."""
        if op._point is None and not op.finished:
            completion.skip(self, op, self.ledger.fail(op, error))

    def carry_out(
        self,
        op: DeviceOp,
        fn: Callable[..., Any],
        before: tuple[Op, ...],
        sources: tuple[Op, ...],
    ) -> None:
        """Enqueue an op that the caller has claimed; errors become the op's.

        Of `before`, the ops of devices are issued, and those of the host are over; `sources` are
        those of them that wrote what the op reads.
        """
        device = self.devices.get(op._device.context.token) or self.streams_of(op._device)
        failure = op.failure
        if failure is None and sources:
            failure = poison(sources)
        if device.faults and failure is None and not device.faults[0].cleared:
            failure = device.faults[0]
        # Memory is given back all the same.
        if failure is None and op._engine._is_dropped and op.kind is not OpKind.FREE:
            failure = refusal.dropped(op)
        if failure is not None:
            completion.skip(self, op, failure)
            return
        timeline = device.take(op, before)
        try:
            if before and not self._wait_for(op, before, timeline):
                failure = poison(sources)
                if failure is not None:
                    completion.skip(self, op, failure)
                    return
            stream = timeline.stream
            if self.ledger.recorder is not None:
                self.ledger.recorder.issuing(op, stream, device.events)
            error: BaseException | None = None
            try:
                op._result = fn(stream)
            except BaseException as raised:
                error = raised
                point = self.mend(op, error, device, timeline)
            else:
                point = self._mark(op, device, timeline)
        except CudasyncError as failed:
            completion.fault(self, op, failed, device)
            return
        except BaseException as signal:
            error = signal
            point = self.mend(op, error, device, timeline)
        finally:
            timeline.give_back()
        self.issued(op, point, error)

    def mend(
        self, op: DeviceOp, error: BaseException, device: DeviceStreams, timeline: Timeline
    ) -> Point | None:
        """`op` fails, since its function raised `error`, or a signal came while it was issued.

        What it had enqueued before is on the stream all the same, and whoever overwrites or frees
        its data has to wait for that: so it gets its point, which is returned. None if the device
        is lost.
        """
        if not (isinstance(error, CudaError) and error.sticky):
            self.ledger.fail(op, error)
            try:
                return op._point or self._mark(op, device, timeline)
            except CudasyncError as failed:
                error = failed
        completion.fault(self, op, error, device)
        return None

    def issued(self, op: DeviceOp, point: Point | None, error: BaseException | None) -> None:
        """Tell whoever waits for `op` to be issued; `error` is what came up meanwhile."""
        if point is not None:
            timeline = point[0]
            record = op._record
            if record is not None:
                for listener in list(record.issue_listeners):
                    listener.told(op)
            if op._is_watched or (
                record is not None and (record.listeners or record.sleepers or record.callbacks)
            ):
                timeline.watch(op, point, self.report)
                op._is_watched = True
            if point[1] % POLL_EVERY == 0:
                self.poll(timeline)
        if error is not None and not isinstance(error, Exception) and not current.is_ours():
            # Ctrl-C inside of `fn`: the op has failed with it like with any other error; but
            # the thread that runs it here is the one that was meant.
            raise error

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

    def tallies(self) -> list[Tally]:
        """What the streams there are have counted."""
        return [device.tally() for device in list(self.devices.values())]

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

    def _mark(self, op: DeviceOp, device: DeviceStreams, timeline: Timeline) -> Point:
        """Give `op` its point: what is on the stream now is all of it."""
        event = device.events.take()
        timeline.stream.record(event)
        seq = timeline.issued + 1
        point = (timeline, seq, event, timeline.clock)
        timeline.in_flight[seq] = op
        timeline.tail = op
        timeline.issued = seq
        op._point = point
        return point

    def _wait_for(self, op: DeviceOp, before: tuple[Op, ...], timeline: Timeline) -> bool:
        """Have the stream wait for what is needed; False if some of it has failed by now."""
        for each in before:
            point = each._point if each.__class__ is DeviceOp else None
            if point is None or point[0] is not timeline:
                break
        else:
            # All of it is on this very stream.
            for each in before:
                timeline.elided += 1
                if each.failure is not None:
                    return False
            return True
        for device_op, event in self._waits(before, timeline):
            try:
                timeline.stream.wait(event)
            except CudaError as error:
                # The event's device may be the one that is lost, or the stream's.
                if (
                    not error.sticky
                    or device_op._device is op._device
                    or timeline.streams.is_lost()
                ):
                    raise
                # Nothing runs on the other device any more: what was to be waited for has failed.
                completion.fault(device_op._pool, device_op, error)
        # Asked last: one that ended without failing, or whose event was waited for, has run.
        return all(each.failure is None for each in before)

    def _waits(self, before: tuple[Op, ...], timeline: Timeline) -> list[tuple[DeviceOp, Event]]:
        """The events that `timeline` has to wait for before an op that comes after `before`."""
        events = []
        counters = self.ledger.counters
        # Youngest first: what it came after need not be waited for again.
        for each in sorted(before, key=_number, reverse=True):
            if not isinstance(each, DeviceOp):
                continue
            point = each._point
            if point is None or point[0].is_gone or timeline.is_behind(point[0], point[1]):
                timeline.elided += 1
            else:
                events.append((each, point[2]))
                timeline.learn(point)
                counters.waits.next()
        return events

    def poll(self, timeline: Timeline) -> None:
        """Ask how far the stream has come."""
        middle = timeline.in_flight.get((timeline.finished + timeline.issued) // 2 + 1)
        if middle is not None:
            completion.query(self, middle)
            if timeline.load > MOST_UNASKED:
                self.watch(middle)


def _number(op: Op) -> int:
    return op.number
