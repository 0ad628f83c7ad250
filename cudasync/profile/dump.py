"""The tower. What is in flight now, and what each thread waits for: for a program that hangs.

It only looks: nothing is planned, issued or waited for, no driver is called, so it can be asked for
at any moment, also by a signal. What goes on meanwhile may be missing, or be there twice.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from cudasync.engine import observing, waiting
from cudasync.engine.lifecycle.shutdown import in_flight
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op_classes import DataFence, Fence

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.engine import Engine, Op

VARIABLE = "CUDASYNC_DUMP_SIGNAL"
_MOST = 20


def dump() -> str:
    """Ops that run, that are on streams and that wait, with what they wait for; and threads that
    wait for ops. Changes nothing and never blocks, so a program that hangs can be asked.

    With `CUDASYNC_DUMP_SIGNAL=USR1` in the environment, `kill -USR1 PID` has it on stderr. Threads
    are named where there is a GIL: without one, their frames can not be looked at safely.
    """
    lines = [f"cudasync, process {os.getpid()}: about {COMBINER.unplanned} pushes not planned yet"]
    for engine in sorted(observing.every_engine(), key=id):
        lines += _engine(engine)
    lines += _threads()
    return "\n".join(lines)


def _engine(engine: Engine) -> list[str]:
    lines = [repr(engine)]
    running: dict[Op, str] = {}
    if engine._serial is not None:
        # It has no workers: its ops run on the threads that push them.
        running |= dict.fromkeys(list(engine._serial._running), "the thread that pushed")
    for pool in [] if engine._serial is not None else dict.fromkeys(list(engine._pools.values())):
        for worker in list(pool.workers):
            op = worker.op
            if worker.is_in_op and op is not None and not op.finished:
                running[op] = worker.name
    lines += _first([f"  on {where}: {_named(op)}" for op, where in running.items()])
    flying = [] if engine._serial is not None else in_flight(_issuer(engine))
    streams: dict[str, list[Op]] = {}
    for op, timeline in flying:
        streams.setdefault(timeline.name, []).append(op)
    for name, ops in sorted(streams.items()):
        lines += _first([f"  on {name}: {_named(op)}" for op in ops])
    seen = {*running, *(op for op, _ in flying)}
    waits = []
    for op in list(engine._registered):
        if op.finished or op in seen or isinstance(op, Fence | DataFence):
            continue
        before = _before(op)
        what = ", ".join(map(_named, before[:3])) + (" and more" if len(before) > 3 else "")
        waits.append(f"  waits: {_named(op)}, for {what or 'its turn'}")
    return lines + _first(waits)


def _before(op: Op) -> list[Op]:
    """What `op` has to come after and is not over."""
    gate = None if op._node is None else op._node.gate
    return [each for each in getattr(gate, "before", ()) if not each.finished]


def _threads() -> list[str]:
    """For each thread that waits for an op which one, and where."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return []
    names = {each.ident: each.name for each in threading.enumerate()}
    lines = []
    for ident, top in sys._current_frames().items():
        op, at = _awaited(top)
        if op is None:
            continue
        if isinstance(op, Fence | DataFence):
            before = [each for each in _before(op) if not isinstance(each, Fence)]
            what = ", ".join(map(_named, before[:3])) or "what was pushed before"
            what += " and more" if len(before) > 3 else ""
        else:
            what = _named(op)
        site = "" if at is None else f", at {at.f_code.co_filename}:{at.f_lineno}"
        lines.append(f"thread {names.get(ident, ident)!r} waits for {what}{site}")
    return lines


def _awaited(frame: FrameType | None) -> tuple[Op | None, FrameType | None]:
    """What a thread with these frames waits for, and the line of the program that does."""
    op: Op | None = None
    while frame is not None:
        if op is None and frame.f_code is waiting.wait_for.__code__:
            op = frame.f_locals["op"]
        elif op is not None and not frame.f_globals.get("__name__", "").startswith("cudasync."):
            break
        frame = frame.f_back
    return op, frame


def _named(op: Op) -> str:
    return f"{op.name} #{op.number} pushed at {op.push_site}"


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST
    return lines if more <= 0 else [*lines[:_MOST], f"    and {more} more"]


def _issuer(engine: Engine) -> Any:
    return engine._issuer


def listen() -> None:
    """Write a dump to stderr at the signal that the environment names, from here on.

    Raises ValueError for a name that is no signal's. On a thread that is not the main one, which
    alone may say so, nothing is done.
    """
    name = os.environ.get(VARIABLE)
    if not name or threading.current_thread() is not threading.main_thread():
        return
    number = getattr(signal, f"SIG{name.upper().removeprefix('SIG')}", None)
    if not isinstance(number, signal.Signals):
        raise ValueError(f"{VARIABLE}={name}: there is no such signal; USR1 is one")
    signal.signal(number, _say)


def _say(number: int, frame: FrameType | None) -> None:
    # Not by `sys.stderr`, which may be what was interrupted.
    data = f"{dump()}\n".encode(errors="backslashreplace")
    while data:
        data = data[os.write(2, data) :]
