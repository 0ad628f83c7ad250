"""Floor 2. Issuing device ops: takes a stream, waits for events, calls `fn(stream)`, records.

An op is issued once all its device predecessors are issued and its host predecessors are over.
Driver calls must not be repeated, so one thread claims the op. If that thread is suspended there,
the op and its dependents are stuck, and everything else continues on other streams.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions import exploration
from cudasync.engine import current
from cudasync.engine.device import completion, devices, polling
from cudasync.engine.device.polling import POLL_EVERY
from cudasync.engine.device.ready import READY
from cudasync.engine.device.timeline import ISSUER
from cudasync.engine.device.waits import wait_for
from cudasync.engine.ledger import poison
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log import node as nodes
from cudasync.engine.op import Op, OpKind, claim, claimant, is_claimed_by, salvaged
from cudasync.engine.op_classes import DeviceOp
from cudasync.engine.replay.tape import LOCAL
from cudasync.errors import CudaError, CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Event, Stream
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.device.timeline import Timeline
    from cudasync.engine.ledger import Ledger
    from cudasync.engine.log.node import Place

# Waits for foreign streams, and kernels without a name, which are users' functions.
_AT_RISK = (OpKind.WAIT, OpKind.KERNEL)


class Issuer:
    """Issues the device ops of one engine."""

    def __init__(
        self,
        ledger: Ledger,
        on_device: Callable[[], None],
        *,
        streams: int | None,
        timing: bool,
    ) -> None:
        self.ledger = ledger
        # The pool that issues ops with driver calls that may block; set by the engine.
        self.blocking: Place
        # Called at the first use of a device.
        self._on_device = on_device
        self._streams_per_device = streams
        self._timing = timing
        # The ops that ran when Ctrl-C ended a wait, with the time and the stream.
        self.interrupted: dict[DeviceOp, tuple[float, Timeline]] = {}
        # Keyed by the `Life` of the device's context, which a reset ends.
        self.devices: dict[object, DeviceStreams] = {}

    query, watch, report = polling.query, polling.watch, polling.report
    poll, look, tails = polling.poll, polling.look, polling.tails
    end_reached = polling.end_reached
    watch_streams, has_issued_all = polling.watch_streams, polling.has_issued_all
    streams_of, tallies, heal = devices.streams_of, devices.tallies, devices.heal
    dismiss, close = devices.dismiss, devices.close

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

    @claimant
    def issue(self, op: DeviceOp) -> None:
        """Enqueue a ready op on a stream, unless another thread has claimed it."""
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

    def give_up(self, op: DeviceOp, error: BaseException | None = None) -> None:
        """A signal, such as Ctrl-C, came while a thread issued `op`: end the op, and give back its
        stream. Repeatable, since another signal may come meanwhile. `error` is the signal's, unless
        the op has its failure."""
        op._fn = None
        if error is not None and op._point is None and not op.finished:
            self.ledger.fail(op, error)
        for device in list(self.devices.values()):
            for timeline in device.timelines:
                if timeline.holder.get(ISSUER) is op:
                    if op._point is None and not op.finished:
                        self._issue_failed(op, device, timeline)
                    timeline.give_back(op)
                    self.issued(op, timeline, None)
        if op._point is None and not op.finished:
            assert op.failure is not None
            completion.skip(self, op, op.failure)

    def carry_out(
        self,
        op: DeviceOp,
        fn: Callable[..., Any],
        before: tuple[Op, ...],
        sources: tuple[Op, ...],
    ) -> None:
        """Enqueue an op that the caller has claimed; errors become the op's failure.

        In `before`, device ops are issued and host ops are over; `sources` are the writers of the
        op's reads.
        """
        device = self.devices.get(op._device.context.token) or self.streams_of(op._device)
        failure = op.failure
        if device.faults and failure is None and not device.faults[0].cleared:
            failure = device.faults[0]
        # A dropped engine still frees memory.
        if failure is None and op._engine._is_dropped and op.kind is not OpKind.FREE:
            failure = refusal.dropped(op)
        # The failure of an input. An op of several steps may still run some of them.
        spread = poison(op, sources) if failure is None and sources else None
        if spread is not None and op._salvage is None:
            failure = spread
        if failure is not None:
            completion.skip(self, op, failure)
            return
        timeline = device.take(op, before)
        try:
            if before and not wait_for(op, before, sources, timeline):
                spread = poison(op, sources)
            if spread is not None:
                rest = None if op._salvage is None else salvaged(op)
                if rest is None:
                    completion.skip(self, op, spread)
                    timeline.give_back(op)
                    return
                op.failure, fn = spread, rest
            if self.ledger.recorder is not None:
                self.ledger.recorder.issuing(op, timeline.stream, device.events)
            if exploration.is_under_way:
                site = op.push_site
                error = exploration.on_behalf(site, self.enqueue, op, fn, device, timeline)
            else:
                error = self.enqueue(op, fn, device, timeline)
        except CudasyncError as failed:
            completion.fault(self, op, failed, device)
            timeline.give_back(op)
            return
        except BaseException as signal:
            error = signal
            self._mend(op, fn, error, device, timeline)
        # Not in a `finally`: after an interrupt the holder shows where the op may have enqueued
        # work.
        timeline.give_back(op)
        self.issued(op, timeline, error)
        # Its traceback refers to this frame: this avoids a reference cycle.
        error = None

    def enqueue(
        self, op: DeviceOp, fn: Callable[..., Any], device: DeviceStreams, timeline: Timeline
    ) -> BaseException | None:
        """Call `fn` on a stream that the caller holds, with one event behind the work. From then on
        `op` is issued, and other ops may depend on it. Returns an exception that came meanwhile.

        During a profile, an issuer's class has one that first marks the start: `observation`."""
        try:
            # `EventPool.take`, inlined.
            take = device.events.take_free
            try:
                event = take()
            except IndexError:
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
            self._mend(op, fn, error, device, timeline)
            return error
        return None

    def _mend(
        self,
        op: DeviceOp,
        fn: Callable[..., Any],
        error: BaseException,
        device: DeviceStreams,
        timeline: Timeline,
    ) -> None:
        """`op` fails, since its function `fn` raised `error`, or a signal came during its issue.

        Work that it enqueued before is on the stream, and ops that overwrite or free its data must
        wait for that work. So the op is issued like any other, unless the device is lost.
        """
        if fn is not _record and not (isinstance(error, CudaError) and error.sticky):
            # If it runs in part, it has the failure of an input already.
            self.ledger.fail(op, error)
            if op._point is None:
                is_signal = not isinstance(error, Exception)
                self._issue_failed(op, device, timeline, is_signal=is_signal)
        elif op._point is None and isinstance(error, Exception):
            # The device is lost, or not even the event could be recorded.
            completion.fault(self, op, error, device)

    def _issue_failed(
        self, op: DeviceOp, device: DeviceStreams, timeline: Timeline, *, is_signal: bool = True
    ) -> None:
        """Issue `op`, which has failed, behind whatever it has enqueued. After a signal, some of
        its waits may be missing, although the stream's clock has them."""
        op._damage = None
        if is_signal:
            timeline.clock = {}
            try:
                wait_for(op, nodes.before_of(op), (), timeline)
            except CudasyncError as failed:
                completion.fault(self, op, failed, device)
                return
        again = self.enqueue(op, _record, device, timeline)
        if again is not None and not isinstance(again, Exception):
            raise again

    def issued(self, op: DeviceOp, timeline: Timeline, error: BaseException | None) -> None:
        """Notify the issue listeners of `op`; `error` is an exception that came meanwhile."""
        # None if it is over by now: then its ender has notified them.
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
            LOCAL.tape.tick()
        if error is not None and not isinstance(error, Exception) and not current.is_ours():
            # Ctrl-C inside `fn`: the op has failed with it as with any other error, but Ctrl-C was
            # meant for this thread.
            raise error


def _record(stream: Stream, event: Event) -> None:
    stream.record(event)
