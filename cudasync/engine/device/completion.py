"""Floor 2. The end of device ops: their stream reached them, or they were skipped or failed.

Several threads may run this code for the same op at once: its `_outcome` is a cell, so all of them
agree, and ending an op twice is harmless.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from cudasync.atomic import Gate
from cudasync.engine.batch.failed_step import name_to_blame
from cudasync.engine.device import in_doubt
from cudasync.engine.device.attribution import is_harmless, suspect
from cudasync.engine.failure import Failure
from cudasync.engine.ledger import poison
from cudasync.engine.log import node as nodes
from cudasync.engine.log.node import PLANNING
from cudasync.errors import ClosedError, CudaError, CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cudasync.engine.device.in_doubt import Doubt
    from cudasync.engine.device.issue import Issuer
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.device.timeline import Timeline
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp


# Carries out all items of an iterator, by one call of C.
_all: Callable[[Iterable[Any]], object] = partial(deque, maxlen=0)


def query(issuer: Issuer, op: DeviceOp) -> None:
    """Ask the driver whether an issued op has finished; if so, end it."""
    point = op._point
    if point is None or op.finished:
        return
    timeline, seq, event, _ = point
    try:
        is_complete = event.query()
    except CudasyncError as error:
        fault(issuer, op, error)
    else:
        if is_complete:
            advance(issuer, timeline, seq)


def advance(issuer: Issuer, timeline: Timeline, seq: int) -> None:
    """All ops on `timeline` up to `seq` have completed: end them."""
    advance_all(issuer, timeline.streams, ((timeline, seq, None, None),))


def advance_all(issuer: Issuer, device: DeviceStreams, reached: Sequence[tuple[Any, ...]]) -> None:
    """All ops on some timelines of a device have completed up to a seq each: end them.

    `reached` has points; their events and clocks are not looked at.
    """
    ops: list[DeviceOp] = []
    for timeline, seq, _, _ in reached:
        # Others end some of them meanwhile, and remove them.
        ops += filter(None, map(timeline.in_flight.get, range(timeline.finished + 1, seq + 1)))
    ledger = issuer.ledger
    # An op is in doubt before it is issued, so before it can be reached.
    if ledger.recorder is not None or device.concerns:
        _end_each(issuer, ops)
    elif ops:
        _end_all(issuer, device, ops)
    for timeline, seq, _, _ in reached:
        before = timeline.finished
        # Last: who is struck before leaves them to the next thread that comes here.
        _all(map(timeline.in_flight.pop, range(before + 1, seq + 1), repeat(None)))
        tail = timeline.tail
        if tail is not None and tail.finished:
            timeline.tail = None
        if before < seq:
            timeline.finished = seq
            # After the store: who has this news sees it.
            timeline.group.news = object()
    if ledger.held:
        ledger.ended()


def _end_all(issuer: Issuer, device: DeviceStreams, ops: Sequence[DeviceOp]) -> None:
    """End ops of one device that have completed: `end` and `nodes.finish`, inlined."""
    # A tuple of this call, and no constant: its identity tells it from other threads' outcomes.
    failure: Failure | None = None
    said = (failure,)
    give_back, give_back_pinned = device.events.give_back, device.events.give_back_pinned
    count = issuer.ledger.counters.device_ops.count
    for op in ops:
        if op.failure is None:
            outcome = op._outcome
            outcome.append(said)
            if outcome[0] is said:
                next(count)
                op.finished = True
                # Both are looked at after that store: see `Node` and `events`.
                if op._node is not None:
                    nodes.tell(op, op._node)
                if op._is_awaited:
                    give_back_pinned(op._point[2])  # type: ignore[index]
                else:
                    give_back(op._point[2])  # type: ignore[index]
                op._point = None
                op._before = ()
                continue
        end(issuer, op, None)
    _all(map(ops[0]._engine._registered.pop, ops, repeat(None)))


def _end_each(issuer: Issuer, ops: Sequence[DeviceOp]) -> None:
    """End ops that may have failed, be in doubt, or are traced."""
    recorder = issuer.ledger.recorder
    for op in ops:
        if recorder is not None:
            recorder.reached(op)
        in_doubt = op._doubt
        if in_doubt is not None:
            _settle(issuer, op, in_doubt)
        else:
            end(issuer, op, None)


def end(issuer: Issuer, op: DeviceOp, failure: Failure | None) -> None:
    """End `op`, with `failure` unless it has another outcome already."""
    said: tuple[Failure | None] = (failure,)
    # `offer`, inlined.
    outcome = op._outcome
    outcome.append(said)
    believed = outcome[0]
    if believed[0] is not None and op.failure is None:
        op.failure = believed[0]
    ledger = issuer.ledger
    if believed is said:
        if op.failure is None:
            ledger.counters.device_ops.next()
        else:
            ledger.counters.failed_ops.next()
            op._engine._failures.note(op.failure, op)
    nodes.finish(op)
    in_doubt.resolve(op)
    point = op._point
    if point is not None:
        timeline = point[0]
        if timeline.tail is op:
            # Following it has no use now, and a timeline must not keep an op alive.
            timeline.tail = None
        if believed is said:
            # No other thread removes the point, so its event goes back once.
            timeline.streams.events.give_back_pinned(point[2])
            op._point = None
    # Drop the links: else each op would keep all others alive.
    op._before = ()
    if believed is said and ledger.held:
        ledger.ended()


def skip(issuer: Issuer, op: DeviceOp, failure: Failure) -> None:
    """End an op that will not run, but not before its predecessors.

    Ops that overwrite or free its data later wait only for this op, not for earlier users.
    """
    if op.failure is None:
        op.failure = failure
    if issuer.ledger.recorder is not None:
        issuer.ledger.recorder.dropped(op)
    _end_after(issuer, op, nodes.before_of(op))


def _settle(issuer: Issuer, op: DeviceOp, in_doubt: Doubt) -> None:
    """The stream has reached an op in doubt: end it once its predecessors are over."""
    for before in in_doubt.before:
        # Usually this suffices: the predecessor is reached, or lost.
        query(before._pool, before)
    _end_after(issuer, op, in_doubt.before, in_doubt.sources)


def _end_after(
    issuer: Issuer, op: DeviceOp, before: Sequence[Op], sources: tuple[Op, ...] = ()
) -> None:
    ending = Ending(issuer, op, before, sources)
    for each in before:
        node = nodes.of(each)
        node.listeners.append(ending)
        if each.finished:
            ending.gate.arrive(each)
        else:
            each._pool.watch(each)
    if ending.gate.arrive(PLANNING):
        ending.end()


class Ending:
    """An op that ends once its predecessors are over, with the failures of its sources."""

    __slots__ = ("gate", "issuer", "op", "sources")

    def __init__(
        self, issuer: Issuer, op: DeviceOp, before: Sequence[Op], sources: tuple[Op, ...]
    ) -> None:
        self.issuer = issuer
        self.op = op
        self.sources = sources
        self.gate = Gate((PLANNING, *before))

    def notify(self, op: object) -> None:
        if self.gate.arrive(op):
            # Not ended here: in a chain, each of a thousand ops would end inside the previous one.
            self.issuer.put_ending(self)

    def end(self) -> None:
        end(self.issuer, self.op, self.op.failure or poison(self.op, self.sources))


def fault(
    issuer: Issuer, op: DeviceOp, error: BaseException, device: DeviceStreams | None = None
) -> None:
    """The driver failed at `op`. If its context is dead, all ops in flight on it fail.

    `device` is the device of its issue, if `op` has no point yet.
    """
    point = op._point
    if op.finished:
        return
    if is_harmless(op, error):
        end(issuer, op, None)
        return
    if not (isinstance(error, CudaError) and error.sticky):
        failure = issuer.ledger.fail(op, error)
        if op._point is None:
            skip(issuer, op, failure)
        else:
            end(issuer, op, failure)
        return
    if point is not None:
        # Not the device's present streams: it may have been reset since.
        device = point[0].streams
    if device is None:
        device = issuer.streams_of(op._device)
    if not device.is_lost():
        # Another device is lost, and a copy needed its memory. Or this device was lost and reset
        # since, and the first thread that was told has failed its ops.
        if not op.finished:
            skip(issuer, op, Failure(op.number, op.name, op.push_site, error))
        return
    flights = [list(timeline.in_flight.values()) for timeline in device.timelines]
    known = device.fault
    if known is None:
        culprit, suspects = suspect(flights, op, error)
        name = name_to_blame(culprit, error)
        said = Failure(culprit.number, name, culprit.push_site, error, tuple(suspects))
        known = device.blame(said)
        if known is said:
            # Else it may have been cleared since: a late thread must not report it again.
            culprit._engine._failures.note(said, culprit)
    for timeline in device.timelines:
        timeline.in_flight.clear()
    for victim in dict.fromkeys([*chain(*flights), op]):
        # They too end after their predecessors, which may run on another device.
        skip(issuer, victim, known)


def abandon(issuer: Issuer, device: DeviceStreams) -> None:
    """A reset ended these streams: fail the ops that were still on them."""
    error = ClosedError(f"device {device.device.ordinal} was reset while the op was in flight")
    for op in [op for timeline in device.timelines for op in list(timeline.in_flight.values())]:
        fault(issuer, op, error)
    device.close()
