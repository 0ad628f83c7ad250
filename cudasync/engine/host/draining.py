"""Floor 2. The loop that goes through the log and runs what it finds: what a host op costs.

It does by hand what `nodes.finish`, `claim` and `Combiner.enter` do elsewhere, and names them where
it does.
"""

from __future__ import annotations

import sys
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.atomic import DONE, SEAL
from cudasync.engine.device.ready import READY, settle
from cudasync.engine.host.states import WATCHING
from cudasync.engine.log import epoch as epochs
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER, SEGMENT
from cudasync.engine.log.entries import Close
from cudasync.engine.op import Op
from cudasync.engine.op_classes import Fence, PlainOp

if TYPE_CHECKING:
    from cudasync.engine.host.worker import Worker

# Planning ahead stops for a moment when this many ops in a row had to wait: perhaps the one
# that they wait for only needs the processor.
AHEAD = 16
# Where ops are long, so many that are ready are left to each worker before planning pauses: who
# takes one of these need not become the combiner for it.
SHARE = 4
# Another thread that goes through the log has come on in this time, or is suspended.
NAP_S = 200e-6
# Without a GIL it goes on meanwhile: mostly it has come on after a few looks.
LOOKS = 0 if getattr(sys, "_is_gil_enabled", lambda: True)() else 50


def drain(worker: Worker) -> bool:
    """Go through the log as its combiner for a while, running what can run at once.

    True if the worker has planned so far ahead that it may rest for a moment.
    """
    pool = worker.pool
    holder = epochs.latest(COMBINER.epoch)
    is_others = not holder.is_idle and holder.owner != get_ident() and not _is_running(holder)
    # Another thread is planning right now; if it does not come on, it is suspended.
    if is_others and _comes_on(pool.heap):
        return False
    # It refers to what comes after it.
    del holder
    mine = COMBINER.take()
    segment, heap, token = mine.segment, pool.heap, worker.token
    entries, base, epoch, start = segment.entries, segment.base, mine.histories_of, mine.done
    assert start is not None
    # Whose plain ops may run at once, and from which places the others. Nothing has the worker
    # itself for its engine.
    own: object = worker
    places: tuple[object, ...] = ()
    owner = pool.owner()
    # Looked at once it is the combiner: who ranks a pool pushes something behind, and either that
    # is entered below or this epoch is over.
    if owner is not None and not owner._sealed_at and pool.is_plain:
        places = pool, pool.regional
        if owner._compute is pool and not pool.spread:
            own = owner
    ahead = SHARE * pool.size if pool.spread else 0
    behind = entries[start + 1 : start + 3]
    if (
        behind
        and not (len(behind) == 1 and behind[0].__class__ is Fence)
        and WATCHING not in pool.states.now()
    ):
        # What comes behind should not have to wait for the first op; but for what waits for all.
        pool.ring()
    blocked = 0
    worker.count = worker.count[0], mine, start
    index, end = start, start + epochs.STRETCH
    op: Any
    things: Any
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
                    # To loop over a single thing costs an iterator, so it is unpacked instead.
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
                    if not is_clear:
                        is_clear = COMBINER.is_clear(op, epoch)
            elif op._pool in places:
                op.number = base + index
                is_clear = COMBINER.is_clear(op, epoch)
            else:
                is_clear = False
            if is_clear:
                # `claim`, written out.
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
                    # `nodes.finish`, written out.
                    op.finished = True
                    if op._node is not None:
                        nodes.finish(op)
                        settle()
                    if not mine.is_over:
                        entries[index] = DONE
                    mine.done = index = index + 1
                    continue
            if op is SEAL:
                COMBINER.next_segment(mine)
                return False
            if isinstance(op, Op) and not op._engine._sealed_at:
                # `COMBINER.enter`, for what most entries are.
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
        # An exception of an op refers to this frame, which must not keep what comes after it:
        # each epoch refers to the next one, each segment too. Nor the engine: it has to go to
        # tell of an exception that nobody waited for.
        del mine, segment, entries, owner, own, behind
        op = fn = things = variable = None


def _comes_on(heap: list[tuple[int, int]]) -> bool:
    """True if whoever plans comes on, or something becomes ready; looks for a while, then naps."""
    seen = COMBINER.progress
    for _ in range(LOOKS):
        if heap or COMBINER.progress != seen:
            return True
    # Not on the bell: what rings there is meant for somebody who sleeps.
    time.sleep(NAP_S)
    return bool(heap) or COMBINER.progress != seen


def _is_running(holder: epochs.Epoch) -> bool:
    """True if the holder of an epoch is in an op's function, as far as can be seen."""
    entries = holder.segment.entries
    try:
        op = entries[holder.started]
    except IndexError:
        return False
    return isinstance(op, Op) and bool(op._claims)
