"""Floor 2. Ops that an interrupted thread has left: claimed, and neither issued nor over.

Ctrl-C strikes the thread that has claimed an op, and the thread ends the op. But a second Ctrl-C
may strike while it does so, at any point. So no handler can promise that a claimed op ends. Whoever
waits looks whether the claimant is still at it, and ends the op if it is not. The stack of the
claimant tells: a thread is in a function of `CLAIMANTS` from its claim until the op is issued or
over. That costs a claim nothing.

Such an op fails with KeyboardInterrupt, which the interrupted thread has seen.
"""

from __future__ import annotations

import sys
from functools import cache
from operator import attrgetter, itemgetter
from threading import get_ident, main_thread
from typing import TYPE_CHECKING, Any

from cudasync.engine.batch.failed_step import name_to_blame
from cudasync.engine.device.timeline import ISSUER
from cudasync.engine.failure import Failure
from cudasync.engine.log import node as nodes
from cudasync.engine.op import CLAIMANTS
from cudasync.engine.op_classes import DataFence, DeviceOp
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

# Without a GIL the frames of a running thread must not be looked at. Signals strike the main thread
# alone; there, it ends what it has left itself.
_SEES_OTHERS: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
# A stack that is deeper than this counts as one that changed, after so many looks.
_DEEPEST = 255
_LOOKS = 3
# Held by the one thread that ends left ops: a stream has one issuer. Nobody waits for it.
_ENDING = Lock()


def end_left(engine: Engine) -> None:
    """End the ops of `engine` that their claimants have left, and free their streams; pass on those
    that lost their place among the ready ops. Waits for no thread."""
    if engine._serial is not None:
        engine._serial.end_left(engine)
        return
    for op in list(engine._registered):
        if op.finished or isinstance(op, DataFence):
            continue
        if not op._claims:
            if nodes.is_ready(op):
                _pass_on(op)
        elif _is_left(op):
            _end(op)
    issuer: Any = engine._issuer
    for device in list(issuer.devices.values()):
        for timeline in device.taken:
            op = timeline.holder.get(ISSUER)
            if op is not None and not is_at_it(op) and timeline.holder.get(ISSUER) is op:
                _end(op)


def start_anew() -> None:
    """In a forked child: the thread that ended left ops may be the parent's alone."""
    global _ENDING
    _ENDING = Lock()


def left_by_interrupt(op: Op) -> Failure:
    """The failure of an op that an interrupted thread has left."""
    cause = KeyboardInterrupt("interrupted again while the interrupted op was being ended")
    failure = Failure(op.number, name_to_blame(op, cause), op.push_site, cause)
    # Ctrl-C has reported it.
    failure.handle()
    return failure


def _is_left(op: Op) -> bool:
    if isinstance(op, DeviceOp) and (op._point is not None or op._is_given_up):
        return False
    # First the claim, then the stack, then whether it is over: the claimant leaves the functions
    # only behind the end of the op, or its issue.
    if is_at_it(op):
        return False
    return not op.finished and (not isinstance(op, DeviceOp) or op._point is None)


def is_at_it(op: Op) -> bool:
    """True if the thread that claimed `op` is still in a function that runs, issues or ends it."""
    claims = op._claims
    # Without a claim, it was returned meanwhile. Other tokens are those of workers, which no signal
    # strikes.
    token = claims[0] if claims else None
    if not isinstance(token, int):
        return True
    if token == get_ident():
        # The caller's own frames are at rest: there the op is known, too. The caller may wait
        # inside of one op for another one.
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code in CLAIMANTS and frame.f_locals.get("op") is op:
                return True
            frame = frame.f_back
        return False
    # Python's signal handlers run on the main thread alone.
    return token != main_thread().ident or _is_in_claimant(token)


def _is_in_claimant(token: int) -> bool:
    """Whether another thread may be in a function of `CLAIMANTS`."""
    if not _SEES_OTHERS:
        return True
    codes = _codes_of(token)
    return codes is None or not CLAIMANTS.isdisjoint(codes)


def _codes_of(token: int) -> tuple[CodeType, ...] | None:
    """The code of each function that a thread is in; None if its stack changed all the time.

    Each look is one call of C, in which no other thread runs. From one call to the next the thread
    may leave its frames, and a frame that was left must not be asked (on 3.11 that crashed).
    """
    for _ in range(_LOOKS):
        low, high = 1, _DEEPEST
        while low <= high:
            depth = (low + high) // 2
            # `sys._current_frames`, the thread's frame, and all codes: by C alone, in `next`.
            looks = map(_getter(depth), map(itemgetter(token), iter(sys._current_frames, None)))
            try:
                *codes, beyond = next(looks)
            except KeyError:
                # The thread has ended.
                return ()
            except AttributeError:
                # It has fewer frames.
                high = depth - 1
                continue
            if beyond is None:
                return tuple(codes)
            low = depth + 1
    return None


@cache
def _getter(depth: int) -> Callable[[FrameType], tuple[Any, ...]]:
    """Gets the code of a frame and of those around it, `depth` in all, and the frame beyond."""
    around = [".".join(["f_back"] * count) for count in range(depth + 1)]
    return attrgetter(*(f"{each}.f_code".lstrip(".") for each in around[:-1]), around[-1])


def _pass_on(op: Op) -> None:
    """Put `op`, which is ready and unclaimed, if no thread has it in hand."""
    if isinstance(op, DeviceOp) and not op._is_blocking:
        if op._is_owned and not is_pushing():
            op._is_owned = False
        op._pool.put(op)
    elif not _pool_of(op).heap:
        # Not in the heap: an interrupted waiter took it. A worker that has just taken it claims it
        # first, and drops it the second time.
        op._pool.put(op)


def _pool_of(op: Op) -> Any:
    place: Any = op._pool.blocking if isinstance(op, DeviceOp) else op._pool
    return getattr(place, "pool", place)


def is_pushing() -> bool:
    """True if some thread may be in the push of an op that only its push issues."""
    own = get_ident()
    return any(_is_in_claimant(each) for each in list(sys._current_frames()) if each != own)


def _end(op: Op) -> None:
    try:
        if not _ENDING.acquire(blocking=False):
            return
        # Another thread may have ended it meanwhile: then nothing below happens.
        if is_at_it(op):
            return
        if isinstance(op, DeviceOp):
            if op._point is None and not op.finished and op.failure is None:
                op.failure = left_by_interrupt(op)
            op._pool.give_up(op)
            op._is_given_up = True
        elif not op.finished:
            op.failure = op.failure or left_by_interrupt(op)
            op._engine._failures.note(op.failure, op)
            op._engine._ledger.counters.failed_ops.next()
            nodes.finish(op)
            op._engine._ledger.ended()
    finally:
        # Also what an interrupt has left of an earlier time.
        while _ENDING.is_held_here():
            _ENDING.release()
