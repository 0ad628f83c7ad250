"""Floor 2. The engines of a process that forks or exits."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.engine import current
from cudasync.engine.device.ready import READY
from cudasync.engine.failure import Failure
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.lifecycle import left_ops, unhandled
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.replay.tape import LOCAL
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.engine.op import Op


if TYPE_CHECKING:
    from cudasync.engine.engine import Engine

# The engines that are not closed.
engines: weakref.WeakSet[Engine] = weakref.WeakSet()
# Functions that are called with each new engine, for observers of all engines.
openings: list[Callable[[Engine], None]] = []


def opened(engine: Engine) -> None:
    """An engine was made."""
    engines.add(engine)
    for each in tuple(openings):
        each(engine)


@atexit.register
def _close_all() -> None:
    """Let work in flight finish before the interpreter ends, with the limits of `shutdown`.

    Unhandled failures are reported, as when one engine closes.
    """
    # Imported here, since that file imports this one.
    from cudasync.engine.lifecycle import shutdown

    # The exception that ended the program; in an interactive session it may be an old one.
    last = None if hasattr(sys, "ps1") else getattr(sys, "last_type", None)
    was_interrupted = last is not None and issubclass(last, KeyboardInterrupt)
    left = []
    try:
        for each in list(engines):
            with suppress(Exception):
                try:
                    shutdown.leave(each, last)
                except KeyboardInterrupt:
                    end_with_failure()
                    last = KeyboardInterrupt
                    shutdown.leave(each, last)
            left += each._failures.take()
        unhandled.report(left)
        if was_interrupted:
            _end_by_interrupt()
    except BaseException:
        # Another Ctrl-C, or a warning that a filter made an error. Python prints it, and goes on.
        end_with_failure()
        raise


def _end_by_interrupt() -> None:
    """Let the process end by SIGINT, as Python does after a Ctrl-C that nobody has caught.

    Python notes such a Ctrl-C when the program's code ends, and forgets it when a function at exit,
    or a thread meanwhile, evaluates any text: `dataclass` and `namedtuple` do so, thus many
    imports. A text that raises it has it noted again.
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


class _FailsAtTheEnd:
    """Takes the place of `sys.stderr` in a program that has failed while it ended.

    Python ignores exceptions of functions at exit, and has no other way to tell its status then.
    But it flushes stderr behind the last of them, and ends with status 120 if that fails: its own
    status for an error in the clean-up.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()
        if not sys.is_finalizing():
            return
        try:
            sys._getframe(1)
        except ValueError:
            # No code of a program calls, but the end of the interpreter.
            raise OSError("the program failed while it ended") from None


def end_with_failure() -> None:
    """The program is ending, and must not end with status 0."""
    if not isinstance(sys.stderr, _FailsAtTheEnd):
        sys.stderr = _FailsAtTheEnd(sys.stderr)


def drop(engine: Engine) -> None:
    """Let no op of `engine` begin any more: run in turn, none would have begun after Ctrl-C.

    Unplanned ops are refused; planned ops fail when their turn comes.
    """
    if engine._serial is not None:
        return
    engine._is_dropped = engine._is_closed = True
    engine._is_plain = engine._is_direct = False
    engine._sealed_at = engine._sealed_at or max(1, COMBINER.place)
    # This makes a draining worker notice that it is no longer the combiner.
    COMBINER.plan()


def abandon(engine: Engine) -> None:
    """Give up `engine`, whose ops do not end: nobody waits for it any more."""
    drop(engine)
    engine._is_ended = True
    engines.discard(engine)


def close_all_first() -> None:
    """At exit, close engines before the exit handlers of their devices run."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _orphan_all() -> None:
    """In a forked child: close its engines, which have no threads. It may make new engines.

    The parent's other threads are as if suspended for ever, at any point: nothing here waits for
    them, and their planning is abandoned with the log.
    """
    unfinished = COMBINER.start_anew()
    for each in list(engines):
        each._is_closed = each._is_ended = True
        each._is_plain = each._is_direct = False
        unfinished += each._registered
        each._registered = {}
        each._failures.disown()
        if each._serial is None:
            for pool in list(each._pools.values()):
                # If a worker forked inside its op, its thread ends behind that op.
                pool.heap.clear()
                pool.is_closed = True
    unhandled.disown()
    engines.clear()
    READY.clear()
    WATCHDOG.start_anew()
    left_ops.start_anew()
    LOCAL.tape.forget()
    cause = ClosedError("the process was forked: the op runs only in the parent")
    for op in unfinished:
        if not op.finished:
            _orphan(op, cause)
    current.start_anew()


def _orphan(op: Op, cause: ClosedError) -> None:
    """End `op`. No callback is called: locks that it needs may be taken for ever."""
    op.failure = op.failure or Failure(op.number, op.name, op.push_site, cause)
    op._node = None
    op.finished = True
    # Its data is lost, so it poisons readers.
    COMBINER.enter_op(op, op.number, COMBINER.epoch.histories_of)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_orphan_all)
