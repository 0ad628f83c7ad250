"""Floor 2. Issuing device ops: a stream, the waits that are needed, `fn(stream)`, one event.

An op is issued once all its device predecessors are issued and its host predecessors are over.
Driver calls can not be done twice, so one thread claims the op; should it be suspended there,
the op and what depends on it stay, and everything else goes on: others use other streams.

Ops that are ready gather in `READY`; whoever may have made one ready calls `settle`.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.driver import exploring
from cudasync.engine import current
from cudasync.engine.device import completion
from cudasync.engine.device.streams import DeviceStreams
from cudasync.engine.device.waits import wait_for
from cudasync.engine.ledger import poison
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log import node as nodes
from cudasync.engine.op import DeviceOp, Op, OpKind, claim, is_claimed_by
from cudasync.errors import CudaError, CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device, Event, Stream
    from cudasync.engine.device.timeline import Point, Timeline
    from cudasync.engine.ledger import Ledger
    from cudasync.engine.log.node import Place
    from cudasync.engine.trace import Tally

# A dict, so that an op stays in it until it is issued, and may be taken out twice.
# Fences, and ops that are not issued and end now that all before them are over, stand here, too.
READY: dict[Any, None] = {}
# An issue asks the driver how far its stream has come once in this many, so that finished ops do
# not pile up in a program that never waits. One that waits now and then is not asked.
POLL_EVERY = 32
# Waits for streams of others, and kernels that have no name: the functions of users.
_AT_RISK = (OpKind.WAIT, OpKind.KERNEL)
# With more than this in flight on one stream, its watcher waits for the middle one: a device that
# makes no progress unless someone waits for it is then driven along.
MOST_UNASKED = 256


def settle() -> None:
    """Issue what is ready. Blocks for nobody."""
    while READY:
        for each in list(READY):
            if isinstance(each, completion.Ending):
                each.end()
            else:
                each._pool.issue(each)
            READY.pop(each, None)


class Issuer:
    """Issues the device ops of one engine."""

    def __init__(
        self, ledger: Ledger, on_device: Callable[[], None], *, streams: int, timing: bool
    ) -> None:
        self.ledger = ledger
        # Who issues ops whose driver calls may block; set by the engine.
        self.blocking: Place
        # Called when a device comes into use.
        self._on_device = on_device
        self._streams_per_device = streams
        self._timing = timing
        # What ran when Ctrl-C ended a wait: since when, and where.
        self.interrupted: dict[DeviceOp, tuple[float, Timeline]] = {}
        # By the life of the device's context, which a reset ends.
        self.devices: dict[object, DeviceStreams] = {}

    def put(self, op: Op) -> None:
        """Take an op that is ready. Never blocks."""
        assert isinstance(op, DeviceOp)
        if op._is_blocking:
            self.blocking.put(op)
        elif not op._is_owned:
            READY[op] = None

    def put_ending(self, ending: completion.Ending) -> None:
        """Take an ending that is due. Never blocks."""
        READY[ending] = None

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
        token = get_ident()
        try:
            fn = claim(op, token)
            if fn is None:
                return
            plan = nodes.gate_of(op)
            self.carry_out(op, fn, plan.before, plan.sources)
        except BaseException as error:
            # Ctrl-C may have come before `fn` was noted: the cell knows.
            if is_claimed_by(op, token):
                self.give_up(op, error)
            raise

    def give_up(self, op: DeviceOp, error: BaseException) -> None:
        """A signal, such as Ctrl-C, came while `op` was ours to issue: so it has to end."""
        for device in list(self.devices.values()):
            device.release(op)
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
            failure = poison(op, sources)
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
            if before and not wait_for(op, before, sources, timeline):
                failure = poison(op, sources)
                if failure is not None:
                    completion.skip(self, op, failure)
                    return
            if self.ledger.recorder is not None:
                self.ledger.recorder.issuing(op, timeline.stream, device.events)
            if exploring.is_under_way:
                fn = partial(exploring.on_behalf, op.push_site, fn)
            error = self.enqueue(op, fn, device, timeline)
        except CudasyncError as failed:
            completion.fault(self, op, failed, device)
            return
        except BaseException as signal:
            error = signal
            self._mend(op, error, device, timeline)
        finally:
            timeline.give_back(op)
        self.issued(op, timeline, error)
        # Its traceback refers to this frame: no ring of the two.
        error = None

    def enqueue(
        self, op: DeviceOp, fn: Callable[..., Any], device: DeviceStreams, timeline: Timeline
    ) -> BaseException | None:
        """Call `fn` on a stream whose token the caller has, with one event behind it. From then on
        `op` is issued: others may come to depend on it there. Returns what came up meanwhile."""
        try:
            event = device.events.take()
            op._result = fn(timeline._stream or timeline.stream, event)
            seq = timeline.issued + 1
            point = (timeline, seq, event, timeline.clock)
            if (not op._kernel or op._calls_users) and op.kind in _AT_RISK:
                timeline.risk = seq
            timeline.in_flight[seq] = op
            timeline.tail = op
            timeline.issued = seq
            op._point = point
        except BaseException as error:
            self._mend(op, error, device, timeline)
            return error
        return None

    def _mend(
        self, op: DeviceOp, error: BaseException, device: DeviceStreams, timeline: Timeline
    ) -> None:
        """`op` fails, since its function raised `error`, or a signal came while it was issued.

        What it had enqueued before is on the stream all the same, and whoever overwrites or frees
        its data has to wait for that: so it is issued like any other, unless the device is lost.
        """
        if op.failure is None and not (isinstance(error, CudaError) and error.sticky):
            self.ledger.fail(op, error)
            if op._point is None:
                again = self.enqueue(op, _record, device, timeline)
                if again is not None and not isinstance(again, Exception):
                    raise again
        elif op._point is None:
            # The device is lost, or not even the event could be recorded.
            completion.fault(self, op, error, device)

    def issued(self, op: DeviceOp, timeline: Timeline, error: BaseException | None) -> None:
        """Tell whoever waits for `op` to be issued; `error` is what came up meanwhile."""
        # None if it is over by now: whoever ended it has told.
        point = op._point
        if point is not None:
            node = op._node
            if node is not None:
                for listener in node.issue_listeners.copy():
                    listener.notify(op)
            if op._is_watched or (
                node is not None and (node.listeners or node.sleepers or node.callbacks)
            ):
                timeline.watch(op, point, self.report)
                op._is_watched = True
        if timeline.issued % POLL_EVERY == 0:
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

    def look(self) -> None:
        """Book what the devices have finished by now."""
        for device in list(self.devices.values()):
            for timeline in device.timelines:
                # A stream finishes in order: the last that has is found by halves.
                seqs = sorted(timeline.in_flight)
                low, high = 0, len(seqs)
                while low < high:
                    middle = (low + high) // 2
                    op = timeline.in_flight.get(seqs[middle])
                    if op is not None:
                        completion.query(self, op)
                    if op is None or op.finished:
                        low = middle + 1
                    else:
                        high = middle
        settle()

    def tallies(self) -> list[Tally]:
        """What the streams there are have counted."""
        return [device.tally() for device in list(self.devices.values())]

    def heal(self) -> None:
        """Give up the streams of devices that faulted, so that new ones are made after a reset."""
        for token in list(self.devices):
            device = self.devices.get(token)
            if device is None:
                continue
            if device.fault is not None:
                self.devices.pop(token, None)
                device.close()
            else:
                device.forget_failures()

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

    def poll(self, timeline: Timeline) -> None:
        """Ask how far the stream has come, unless few are on it as far as is known."""
        if timeline.load <= POLL_EVERY:
            return
        middle = timeline.in_flight.get((timeline.finished + timeline.issued) // 2 + 1)
        if middle is not None:
            completion.query(self, middle)
            if timeline.load > MOST_UNASKED:
                self.watch(middle)


def _record(stream: Stream, event: Event) -> None:
    stream.record(event)
