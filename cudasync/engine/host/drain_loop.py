"""Floor 2. The loop that drains the log and runs unblocked ops: the cost of a host op.

It inlines `nodes.finish`, `claim` and `Combiner.enter`; comments name them there.
"""

from __future__ import annotations

import sys
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.atomic import DONE, SEAL
from cudasync.engine.device.ready import READY, settle
from cudasync.engine.host.states import WATCHING
from cudasync.engine.host.visiting import come_back, go, host_of, is_planned_by, run_clear
from cudasync.engine.log import epoch as epochs
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER, SEGMENT
from cudasync.engine.log.entries import Close
from cudasync.engine.op import Op
from cudasync.engine.op_classes import Fence, PlainOp

if TYPE_CHECKING:
    from cudasync.engine.host.worker import Worker

# Planning ahead pauses when this many ops in a row were blocked: perhaps the op that they wait for
# only needs the processor.
AHEAD = 16
# With long ops, planning pauses at so many ready ops per worker: a worker that takes a ready op
# need not become the combiner.
SHARE = 4
# In this time another draining thread makes progress, or is suspended.
NAP_S = 200e-6
# Without a GIL it runs meanwhile: usually a few looks show its progress.
LOOKS = 0 if getattr(sys, "_is_gil_enabled", lambda: True)() else 50


def drain(worker: Worker) -> bool:
    """Drain the log as its combiner for a while, and run unblocked ops.

    True if the worker has planned so far ahead that it may rest for a moment, or another thread
    needs long for an entry.
    """
    pool = worker.pool
    holder = epochs.latest(COMBINER.epoch)
    is_others = holder.owner != get_ident() and (
        (not holder.is_idle and not _is_running(holder)) or is_planned_by(holder.owner, pool)
    )
    if is_others:
        if COMBINER.is_slow:
            # A look at short intervals would take the processor, or the GIL, from the planner.
            return True
        # Another thread is planning; without progress, it is suspended.
        if _comes_on(pool.heap):
            return False
    # It refers to all later epochs.
    del holder
    mine = COMBINER.take()
    segment, heap, token = mine.segment, pool.heap, worker.token
    entries, base, epoch, start = segment.entries, segment.base, mine.histories_of, mine.done
    assert start is not None
    # Plain ops of the engine `own` may run at once; no op has the worker as its engine. Other ops
    # may if their place is in `places`.
    own: object = worker
    places: tuple[object, ...] = ()
    owner = pool.owner()
    # Checked by the combiner: a thread that ranks a pool pushes an op afterwards, and either that
    # op is entered below, or this epoch is over.
    if owner is not None and not owner._sealed_at and pool.is_plain:
        places = pool, pool.regional
        if owner._compute is pool and not pool.spread:
            own = owner
    ahead = SHARE * pool.size if pool.spread else 0
    behind = entries[start + 1 : start + 3]
    if (
        behind
        and not (len(behind) == 1 and (behind[0].__class__ is Fence or behind[0] is DONE))
        and WATCHING not in pool.states.now()
    ):
        # Later entries should not have to wait for the first op; a lone fence has to.
        pool.ring()
    blocked = 0
    worker.count = worker.count[0], mine, start
    index, end = start, start + epochs.STRETCH
    op: Any
    things: Any
    host: Any
    variable: Any
    try:
        while index < end:
            if heap and (len(heap) > ahead or not pool.is_plain):
                return False
            # As in `Combiner._plan_on`: begun before it is read.
            mine.started = index
            try:
                op = entries[index]
            except IndexError:
                mine.started = index - 1
                return False
            if mine.is_over:
                return False
            if op.__class__ is PlainOp:
                is_clear = False
                if op._engine is own:
                    op._number = base + index
                    is_clear = True
                    # A loop costs an iterator, so a single thing is unpacked instead.
                    if things := op._reads:
                        if len(things) == 1:
                            (variable,) = things
                            if variable._histories:
                                is_clear = False
                        else:
                            for variable in things:
                                if variable._histories:
                                    is_clear = False
                    if things := op._writes:
                        if len(things) == 1:
                            (variable,) = things
                            if variable._histories:
                                is_clear = False
                        else:
                            for variable in things:
                                if variable._histories:
                                    is_clear = False
                    if not is_clear and not op.finished:
                        is_clear = COMBINER.is_clear(op, epoch)
            elif op._pool in places:
                op.number = base + index
                is_clear = not op.finished and COMBINER.is_clear(op, epoch)
            else:
                is_clear = False
            if is_clear:
                # `claim`, inlined.
                claims = op._claims
                claims.append(token)
                if claims[0] is token and (fn := op._fn) is not None:
                    op._fn = None
                    worker.op = op
                    try:
                        op._result = fn()
                    except BaseException as error:
                        worker.failed(op, error, epoch)
                        worker.skip(index)
                    # `nodes.finish`, inlined.
                    op.finished = True
                    if op._node is not None:
                        worker.is_ending = True
                        nodes.finish(op)
                        worker.is_ending = False
                        settle()
                        if worker.next_pool is not None:
                            end = index + 1
                    if not mine.is_over:
                        entries[index] = DONE
                    mine.done = index = index + 1
                    continue
            if places and isinstance(op, Op) and (host := host_of(op, pool)) is not None:
                op.number = base + index
                if COMBINER.is_clear(op, epoch) and go(worker, host):
                    # False if another thread has claimed it.
                    is_run = run_clear(worker, op, epoch, index)
                    if is_run:
                        if not mine.is_over:
                            entries[index] = DONE
                        mine.done = index = index + 1
                    if not come_back(worker):
                        if not is_run:
                            mine.started = index - 1
                        return True
                    if worker.next_pool is not None:
                        return False
                    if is_run:
                        continue
            if op is DONE:
                # Its push was ahead of this entry's turn: see `log.passing`.
                worker.skip(index)
                mine.done = index = index + 1
                continue
            if op is SEAL:
                COMBINER.next_segment(mine)
                return False
            if isinstance(op, Op) and not op._engine._sealed_at:
                # `COMBINER.enter`, inlined for the usual entry.
                COMBINER.enter_op(op, base + index, epoch)
            else:
                COMBINER.enter(op, base + index, epoch)
            worker.skip(index)
            if READY:
                settle()
            if not mine.is_over:
                entries[index] = DONE
            mine.done = index = index + 1
            if op.__class__ is Close or not pool.is_plain:
                return False
            blocked += 1
            if blocked > AHEAD:
                return True
        if index >= SEGMENT and not segment.is_sealed:
            segment.seal()
        return False
    finally:
        # An exception of an op refers to this frame. The frame must not keep later epochs and
        # segments, since each refers to the next. Nor may it keep the engine, whose collection
        # reports unhandled failures.
        del mine, segment, entries, owner, own, behind
        op = fn = things = variable = host = None


def _comes_on(heap: list[tuple[int, int]]) -> bool:
    """True if the planner makes progress, or an op becomes ready; looks a while, then naps."""
    seen = COMBINER.progress
    for _ in range(LOOKS):
        if heap or COMBINER.progress != seen:
            return True
    # Not on the bell: its rings are meant for sleeping workers.
    time.sleep(NAP_S)
    return bool(heap) or COMBINER.progress != seen


def _is_running(holder: epochs.Epoch) -> bool:
    """True if the holder of an epoch seems to be in an op's function."""
    entries = holder.segment.entries
    try:
        op = entries[holder.started]
    except IndexError:
        return False
    return isinstance(op, Op) and bool(op._claims)
