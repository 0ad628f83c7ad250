"""Floor 2. The push of a launch, written out: what every `kernel[grid, block](...)` pays.

The same as `pushing.push` and `at_once.submit` with all that they call, for a kernel on whole
ranges that are known already, whose predecessors are issued to the same streams. No call that can
be spared is made. As soon as something is different, `at_once.go_on` takes the op as it is: up to
the claim nothing has changed but the log.

As in `planner`: states are read first, then the entry is begun, and only if no other thread has
taken over by then is what was read still so.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.atomic import DONE
from cudasync.engine import at_once, current, issue, refusal
from cudasync.engine.issue import POLL_EVERY
from cudasync.engine.op import DeviceOp, OpKind
from cudasync.engine.planner import PLANNER, SEGMENT, state_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import TypeAlias

    from cudasync.driver import Device, Event, Stream
    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op, Regions
    from cudasync.engine.ranges import RangeMap
    from cudasync.engine.state import State
    from cudasync.engine.streams import DeviceStreams
    from cudasync.engine.timeline import Timeline
    from cudasync.engine.variable import Var

    Enqueue: TypeAlias = Callable[..., Any]
    # Byte ranges; variables that are read; variables that are written.
    Accesses: TypeAlias = tuple[Regions, tuple[Var, ...], tuple[Var, ...]]

    # The `exact` of the ranges, the states that are only read, those that are written.
    Found: TypeAlias = tuple[object, list[State], list[State]]

_LOG = PLANNER.log
_RANGES = PLANNER.ranges
_READY = issue.READY
_KERNEL = OpKind.KERNEL
_NOTHING: Found = (None, [], [])
_maybe_inside = current.maybe_inside


class Known:
    """The states that a launch touches, found once, as long as the ranges are as they were then."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        # By the ranges' `exact`: which states are only read, and which are written.
        self.found: Found = (None, [], [])


def push(
    engine: Engine,
    enqueue: Enqueue,
    accesses: Accesses,
    name: str,
    device: Device,
    frame: FrameType,
    kernel: str = "",
    known: Known | None = None,
    kind: OpKind = _KERNEL,
    is_users: bool = False,
) -> DeviceOp:
    """Push a launch (or a copy), `frame` being where; for an engine that is `_is_direct`.

    `enqueue(stream, event)` enqueues it and records the event behind it; `enqueue(stream)` just
    enqueues it. A launch that is pushed again and again brings what is `known` of it. One that
    `is_users`, a function of a stream, is called with the thread inside of the op.
    """
    issuer: Any = engine._issuer
    op: DeviceOp = DeviceOp()
    if is_users:
        enqueue = partial(recorded, partial(current.call, op, enqueue))
    op.finished = False
    op.failure = None
    op.number = 0
    op.name = name
    op._engine = engine
    op._fn = enqueue
    op._pool = issuer
    op._record = None
    op._code = frame.f_code
    op._at = frame.f_lasti
    op.kind = kind
    op._before = None
    op._device = device
    op._kernel = kernel
    op._outcome = []
    op._point = None
    op._regions, op._reads, op._writes = accesses
    if _maybe_inside() is not None:
        engine._nested.next()
    is_ours = False
    try:
        segment = _LOG.tail
        segment.append(op)
        # Gone through once, and left by `break` as soon as something is different.
        while True:
            mine = PLANNER.tenure
            # A tenure that can be seen there has one.
            index: int = mine.done  # type: ignore[assignment]
            entries = segment.entries
            streams = issuer.devices.get(device.context.token)
            ranges = _RANGES.get(mine.states)
            if (
                mine.segment is not segment
                or mine.owner != get_ident()
                or mine.started >= index
                or index >= len(entries)
                or entries[index] is not op
                or engine._sealed_at
                or streams is None
                or streams.faults
                or ranges is None
            ):
                break
            found = _NOTHING if known is None else known.found
            if found[0] is not ranges.exact:
                maybe = _states(op, ranges)
                if maybe is None:
                    break
                found = maybe
                if known is not None:
                    known.found = maybe
            _, reads, writes = found

            # What it comes after has to be over, or issued to these streams. Mostly at most one op
            # of that is in flight, and the last of its stream.
            group = streams.compute if kind is _KERNEL else streams.group_of(kind)
            last = followed = None
            before: tuple[Op, ...] = ()
            sources: tuple[Any, ...] = ()
            for state in writes:
                other: Any = state.writer
                if other is not None and other is not last and not other.finished:
                    if last is not None:
                        break
                    last = other
                if state.readers or (other is not None and other.failure is not None):
                    break
            else:
                for state in reads:
                    other = state.writer
                    if other is not None and other is not last:
                        if not other.finished:
                            if last is not None:
                                break
                            last = other
                        if other.failure is not None:
                            break
                else:
                    if last is None:
                        followed = _least_loaded(group)
                    else:
                        point = last._point
                        if point is not None:
                            timeline = point[0]
                            if timeline.tail is last and timeline.group is group:
                                followed, before = timeline, (last,)
            if followed is None:
                chosen = _choose(group, streams, reads, writes)
                if chosen is None:
                    break
                followed, before, is_behind = chosen
                if not is_behind:
                    if op._writes or op._regions[2]:
                        break
                    # All of these wrote what it reads.
                    wrote = [state.writer for state in reads + writes]
                    sources = tuple([each for each in before if each in wrote])
                    followed = None
            if followed is not None:
                try:
                    followed._vacant.pop()
                except IndexError:
                    # Another thread issues there.
                    break

            mine.started = index
            # The second: a signal handler or finaliser pushed meanwhile, on this very thread.
            if not mine.successor and mine.done == index:
                op._before = before
                try:
                    del op._fn
                    is_ours = True
                except AttributeError:
                    op._before = None
            if not is_ours:
                # Who took over meanwhile goes on with it, and may have claimed it.
                if followed is not None:
                    followed._vacant.append(None)
                break
            op.number = segment.base + index
            for state in reads:
                readers = state.readers
                readers.append(op)
                if len(readers) >= state.sweep_at:
                    state.sweep()
            for state in writes:
                state.writer = op
                if state.readers:
                    state.readers = []
            engine._registered[op] = None
            if not mine.successor:
                entries[index] = DONE
            mine.done = index = index + 1
            if index >= SEGMENT and not segment.is_sealed:
                segment.seal()
            break

        if not is_ours and segment.is_sealed:
            _LOG.append_again(segment, op)
        # An exception of the op will refer to this frame, which must not keep what comes after it:
        # each tenure refers to the next one, each segment too.
        del mine, segment, entries
        if not is_ours:
            at_once.go_on(op)
        elif followed is None:
            issuer.carry_out(op, enqueue, before, sources)
        else:
            error = None
            seq = 0
            try:
                event = streams.events.take()
                op._result = enqueue(followed._stream or followed.stream, event)
                seq = followed.issued + 1
                point = (followed, seq, event, followed.clock)
                followed.in_flight[seq] = op
                followed.tail = op
                followed.elided += len(before)
                followed.issued = seq
                op._point = point
            except BaseException as raised:
                error = raised
                point = issuer.mend(op, error, streams, followed)
            finally:
                followed._vacant.append(None)
            if seq % POLL_EVERY == 0 or op._record is not None or error is not None:
                issuer.issued(op, point, error)
        for variable in op._writes:
            variable._note_write()
        if _READY:
            issue.settle()
    except BaseException as failed:
        if is_ours:
            issuer.give_up(op, failed)
        else:
            at_once.leave(op)
        raise
    if engine._is_closed:
        refusal.raise_if_refused(op)
    return op


def _least_loaded(group: list[Timeline]) -> Timeline:
    """The stream of a group on which the fewest ops are in flight."""
    least = group[0]
    fewest = least.issued - least.finished
    if fewest:
        for timeline in group:
            load = timeline.issued - timeline.finished
            if load < fewest:
                least, fewest = timeline, load
    return least


def _choose(
    group: list[Timeline], streams: DeviceStreams, reads: list[State], writes: list[State]
) -> tuple[Timeline, tuple[Op, ...], bool] | None:
    """The stream for an op that uses these states, what it comes after, and whether it does so
    there without a wait. None unless all of that is over, or issued to `streams`.

    The stream is that of the youngest of it that is the last there.
    """
    others: list[Any] = [state.writer for state in writes]
    others += [state.writer for state in reads]
    for state in writes:
        others += state.readers
    before: list[Op] = []
    behind = followed = None
    youngest = 0
    is_apart = False
    for other in dict.fromkeys(others):
        if other is None:
            continue
        if other.finished:
            if other.failure is not None:
                return None
            continue
        point = other._point
        if point is None or other.failure is not None:
            return None
        timeline = point[0]
        if timeline is not behind:
            if timeline.streams is not streams:
                return None
            is_apart = behind is not None
            behind = timeline
        if timeline.tail is other and other.number > youngest and timeline.group is group:
            followed, youngest = timeline, other.number
        before.append(other)
    if followed is None:
        is_apart = behind is not None
        followed = _least_loaded(group)
    return followed, tuple(before), not is_apart or _is_behind(followed, before)


def recorded(fn: Callable[[Stream], Any], stream: Stream, event: Event | None = None) -> Any:
    """`fn(stream)`, and the event behind it."""
    result = fn(stream)
    if event is not None:
        stream.record(event)
    return result


def _is_behind(timeline: Timeline, before: list[Op]) -> bool:
    """True if what is issued to `timeline` now comes after all of `before` without a wait."""
    clock = timeline.clock
    for each in before:
        point = each._point
        if point is not None:
            its, seq = point[0], point[1]
            if its is not timeline and its.finished < seq and clock.get(its, 0) < seq:
                return False
    return True


def _states(op: DeviceOp, ranges: RangeMap) -> Found | None:
    """The states of what `op` only reads and of what it writes, read or not; with `ranges.exact`.

    None if one of its ranges has no state of its own yet.
    """
    assert op._regions is not None
    only_read, updated, written = op._regions
    exact = ranges.exact
    find = exact.get
    reads: list[State] = []
    writes: list[State] = []
    for region in only_read:
        state = find(region) or ranges.find(region)
        if state is None:
            return None
        reads.append(state)
    for region in updated + written:
        state = find(region) or ranges.find(region)
        if state is None:
            return None
        writes.append(state)
    for variable in op._reads:
        reads.append(state_of(variable, ranges.epoch))
    for variable in op._writes:
        writes.append(state_of(variable, ranges.epoch))
    return exact, reads, writes
