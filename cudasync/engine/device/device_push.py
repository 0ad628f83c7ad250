"""Floor 2. The push of a device op, the cost of each launch, copy, allocation and free.

Usually all predecessors of a device op are over or issued. Then its push becomes the combiner,
plans the op and issues it. No other thread must know of the op, so it has no node and no gate. This
file inlines `Combiner.enter_op` and `Issuer.issue` without the rare cases, and avoids calls.

Invariants:
- the entry is begun before a history is read. A thread that takes over afterwards works on copies
  and enters the op again; the claim decides which thread issues it;
- until the claim only the log has changed. So a rare case is left to the long way, through a node
  and a gate: `go_on`;
- histories change after the claim, and the op is issued after that;
- no loop ends with an `if`: from Python 3.12 on the jump back behind an `if` is outside the `try`,
  and a signal there would bypass the `except`.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.atomic import DONE
from cudasync.engine import current
from cudasync.engine.device.polling import POLL_EVERY
from cudasync.engine.device.ready import READY, settle
from cudasync.engine.device.slow_path import go_on, leave
from cudasync.engine.device.stream_affinity import beside, choose
from cudasync.engine.device.timeline import ISSUER
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log import histories
from cudasync.engine.log.combiner import COMBINER, SEGMENT
from cudasync.engine.op import OpKind, claimant, is_claimed_by
from cudasync.engine.op_classes import DeviceOp

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import TypeAlias

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.log.histories import Known
    from cudasync.engine.op import Op

    Enqueue: TypeAlias = Callable[..., Any]

_LOG = COMBINER.log
_RANGES = COMBINER.ranges
_KERNEL = OpKind.KERNEL
_maybe_inside = current.maybe_inside


@claimant
def push(
    engine: Engine,
    enqueue: Enqueue,
    accesses: Accesses,
    name: str,
    device: Device,
    frame: FrameType,
    kernel: str | tuple[str, ...] = "",
    known: Known | None = None,
    kind: OpKind = _KERNEL,
    prepare: Callable[[DeviceOp], bool] | None = None,
    made: DeviceOp | None = None,
) -> DeviceOp:
    """Push a device op, at `frame`, onto an asynchronous engine.

    `enqueue(stream, event)` enqueues the work and records the event behind it; `enqueue(stream)`
    only enqueues. A repeated launch passes its `known` histories. `prepare(op)` is called first; it
    returns True if `Issuer.carry_out` must issue the op. An op that is `made` is in the log
    already; it has these accesses and the function.
    """
    issuer: Any = engine._issuer
    op: DeviceOp
    if made is None:
        op = DeviceOp()
        op.finished = False
        op.failure = None
        op.number = 0
        op.name = name
        op._engine = engine
        op._fn = enqueue
        op._claims = []
        op._pool = issuer
        op._node = None
        op._code = frame.f_code
        op._at = frame.f_lasti
        op.kind = kind
        op._before = None
        op._device = device
        op._kernel = kernel
        op._outcome = []
        op._is_watched = op._is_awaited = False
        op._point = None
        op._regions, op._reads, op._writes = accesses
    else:
        op = made
    mine = fn = is_special = None
    if prepare is not None:
        is_special = prepare(op)
    token = get_ident()
    try:
        segment = _LOG.tail
        if made is None:
            # Not as a method: Python would look for one in the class first.
            append = segment.append
            append(op)
        # Runs once; `break` leaves it in a rare case.
        while True:
            mine = COMBINER.epoch
            # Set in every visible epoch.
            index: int = mine.done  # type: ignore[assignment]
            entries = segment.entries
            if (
                mine.segment is not segment
                or mine.owner != token
                or mine.started >= index
                or index >= len(entries)
                or entries[index] is not op
            ):
                if segment.is_sealed:
                    _LOG.append_again(segment, op)
                # Plain ops before it may stay unplanned: then `index` is not `mine.done`.
                mine, index = COMBINER.reach(op)
                if mine is None:
                    break
                segment = mine.segment
                entries = segment.entries
            mine.started = index
            # The second condition: a signal handler or finaliser pushed meanwhile, on this thread.
            if mine.is_over or mine.done > index:  # type: ignore[operator]
                break
            streams = issuer.devices.get(device.context.token)
            if engine._sealed_at or streams is None:
                break
            ranges = _RANGES.get(mine.histories_of)
            if ranges is None:
                ranges = COMBINER.ranges_of(mine.histories_of)
            is_again = False
            if known is not None and (found := known.found)[0] is ranges.exact:
                # If no op has touched memory since the last push of this launch, then that push is
                # the last writer of these ranges, and they have no readers since.
                if ranges.latest == known.latest:
                    is_again = True
            else:
                maybe = histories.find(op, ranges)
                if maybe is None:
                    break
                found = maybe
                if known is not None and not (op._reads or op._writes):
                    known.found = maybe
            _, reads, writes, _ = found

            # `choose`, inlined for the usual case: at most one predecessor is in flight, as the
            # last op of its stream.
            group = streams.compute if kind is _KERNEL else streams.group_of(kind)
            last = followed = None
            before: tuple[Op, ...] = ()
            sources: tuple[Op, ...] = ()
            if is_again:
                last = writes[0].writer
                if last is not None and last.finished:
                    if last.failure is not None:
                        break
                    last = None
            for history in () if is_again else writes:
                other: Any = history.writer
                if other is not last and other is not None:
                    if not other.finished:
                        if last is not None:
                            break
                        last = other
                    elif other.failure is not None:
                        break
                if history.readers:
                    break
                other = None
            else:
                for history in reads:
                    other = history.writer
                    if other is not last and other is not None:
                        if not other.finished:
                            if last is not None:
                                break
                            last = other
                        elif other.failure is not None:
                            break
                    other = None
                else:
                    if last is None:
                        followed = group.choose()
                        if followed.tail is not None and followed.delays(before):
                            streams.counters.shared.next()
                    else:
                        point = last._point
                        # An op that fails during issue has its failure before its point.
                        if point is not None and last.failure is None:
                            timeline = point[0]
                            if timeline.followers is group:
                                before = (last,)
                                followed = timeline
                                if timeline.tail is not last:
                                    followed = beside(point, before, group)
            # The concerns last: then an op taken for unfinished is not in doubt, and was not.
            if followed is None or is_special or streams.concerns:
                chosen = choose(op, streams, group, found)
                if chosen is None:
                    break
                followed, before, sources = chosen
                if is_special:
                    followed = None
                elif followed is not None and followed.delays(before):
                    streams.counters.shared.next()

            op._before = before
            # `claim`, inlined.
            claims = op._claims
            claims.append(token)
            if claims[0] is not token:
                # A thread that took over meanwhile has entered and claimed it.
                op._before = None
                break
            fn = op._fn
            op._fn = None
            if followed is not None and followed.holder.setdefault(ISSUER, op) is not op:
                # Another thread issues to that stream.
                followed = None
                inputs = [history.writer for history in reads + writes[: found[3]]]
                sources = tuple(filter(inputs.__contains__, before))
            op.number = segment.base + index
            for history in reads:
                if len(history.readers) >= history.sweep_at:
                    history.sweep()
                history.readers.append(op)
            ranges.latest = -1
            if is_again:
                for history in writes:
                    history.writer = op
            else:
                for history in writes:
                    if history.readers:
                        history.readers = []
                    history.writer = op
            if known is not None and writes:
                # After the histories: a signal in between leaves numbers that do not match.
                known.latest = ranges.latest = op.number
            # Until the op is over, the engine keeps what the function has.
            engine._registered[op] = fn
            if not mine.is_over:
                entries[index] = DONE
            if mine.done == index:
                mine.done = index = index + 1
                if index >= SEGMENT and not segment.is_sealed:
                    segment.seal()
            else:
                mine.started = mine.done - 1  # type: ignore[operator]
            break

        if fn is None and mine is not None:
            # Nothing has changed: the entry can be begun anew.
            mine.started = mine.done - 1  # type: ignore[operator]
        # An exception of the op will refer to this frame, which must not keep later epochs and
        # segments: each refers to the next.
        del mine, segment, entries
        if fn is None:
            go_on(op)
        elif followed is None:
            issuer.carry_out(op, fn, before, sources)
        else:
            followed.elided += len(before)
            error = issuer.enqueue(op, fn, streams, followed)
            # Not after an interrupt: then it shows where the op may have enqueued work.
            followed.holder.clear()
            if (
                error is not None
                or op._node is not None
                or op._is_watched
                or not followed.issued % POLL_EVERY
            ):
                issuer.issued(op, followed, error)
                # Its traceback refers to this frame: this avoids a reference cycle.
                error = None
        for variable in op._writes:
            variable._note_write()
        if READY:
            settle()
    except BaseException as failed:
        # Ctrl-C may have come before the claim was stored in a local: the cell has it.
        if is_claimed_by(op, token):
            issuer.give_up(op, failed)
        else:
            leave(op)
        raise
    finally:
        # Behind the append: a wait for all that misses this number has its fence behind the op.
        if _maybe_inside() is not None:
            engine._nested.next()
    if engine._is_closed:
        refusal.raise_if_refused(op)
    return op
