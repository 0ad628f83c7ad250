"""Floor 2. When the process forks or ends: what becomes of its engines."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.engine import current
from cudasync.engine.device.ready import READY
from cudasync.engine.failure import Failure
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.lifecycle import unhandled
from cudasync.engine.log.combiner import COMBINER
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.engine.op import Op


if TYPE_CHECKING:
    from cudasync.engine.engine import Engine

# Those that are not closed.
engines: weakref.WeakSet[Engine] = weakref.WeakSet()
# Called with each engine that is made, by whoever watches all of them.
openings: list[Callable[[Engine], None]] = []


def opened(engine: Engine) -> None:
    """An engine was made."""
    engines.add(engine)
    for each in tuple(openings):
        each(engine)


@atexit.register
def _close_all() -> None:
    """Let work in flight finish before the interpreter goes, as far as `ending` says.

    What failed and nobody was told of is reported, as it is when one engine closes.
    """
    # Here, since it is built upon this file.
    from cudasync.engine.lifecycle import shutdown

    # What ended the program; where somebody types, it may have been long ago.
    last = None if hasattr(sys, "ps1") else getattr(sys, "last_type", None)
    left = []
    for each in list(engines):
        with suppress(Exception):
            try:
                shutdown.leave(each, last)
            except KeyboardInterrupt:
                last = KeyboardInterrupt
                shutdown.leave(each, last)
        left += each._failures.take()
    unhandled.report(left)


def drop(engine: Engine) -> None:
    """Let no op of `engine` begin any more: run in turn, none would have after Ctrl-C.

    What is not planned is refused, what is planned fails once it is its turn.
    """
    if engine._serial is not None:
        return
    engine._is_dropped = engine._is_closed = True
    engine._is_plain = engine._is_direct = False
    engine._sealed_at = engine._sealed_at or max(1, COMBINER.place)
    # A worker that runs what it plans sees that it is no longer the combiner.
    COMBINER.plan()


def abandon(engine: Engine) -> None:
    """Leave `engine` with ops that do not end: nobody waits for it any more."""
    drop(engine)
    engine._is_ended = True
    engines.discard(engine)


def close_all_first() -> None:
    """At exit, close engines before what was set up for the devices they use goes."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _orphan_all() -> None:
    """In a forked child: its engines have no threads, so they are closed. It may make new ones.

    The parent's other threads are as if suspended for ever, wherever they were: nothing here
    waits for them, and what they were planning is left behind with the log.
    """
    unfinished = COMBINER.start_anew()
    for each in list(engines):
        each._is_closed = each._is_ended = True
        each._is_plain = each._is_direct = False
        unfinished += each._registered
        each._registered = {}
        each._failures.disown()
    unhandled.disown()
    engines.clear()
    READY.clear()
    WATCHDOG.start_anew()
    cause = ClosedError("the process was forked: the op runs in the parent only")
    for op in unfinished:
        if not op.finished:
            _orphan(op, cause)
    current.forget()


def _orphan(op: Op, cause: ClosedError) -> None:
    """End `op`. Nobody is called: what callbacks need may be locked for good."""
    op.failure = op.failure or Failure(op.number, op.name, op.push_site, cause)
    op._node = None
    op.finished = True
    # What it would have written is lost, and said to be.
    COMBINER.enter_op(op, op.number, COMBINER.epoch.histories_of)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_orphan_all)
