"""The tower. Ops in flight as text, also at a signal: for a program that hangs."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

from cudasync.profile.snapshot import MOST, look

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.profile.snapshot import EngineLook, Group

VARIABLE = "CUDASYNC_DUMP_SIGNAL"


def dump() -> str:
    """Ops that run, are on streams or wait, with the reasons; and threads that wait for ops.

    It changes nothing and never blocks, so it works in a program that hangs. With
    `CUDASYNC_DUMP_SIGNAL=USR1` in the environment, `kill -USR1 PID` writes it to stderr. It lists
    threads only with a GIL, because otherwise their frames cannot be read safely.
    """
    seen = look()
    lines = [f"cudasync, process {seen['pid']}: about {seen['unplanned']} pushes not planned yet"]
    for engine in seen["engines"]:
        lines += [engine["said"], *_engine(engine)]
    for each in seen["threads"] or ():
        site = each["at"] and f", at {each['at']}"
        lines.append(f"thread {each['thread']!r} waits for {each['waits_for']}{site}")
    return "\n".join(lines)


def _engine(engine: EngineLook) -> list[str]:
    running = [f"  on {group['where']}: {op}" for group in engine["running"] for op in group["ops"]]
    if len(running) > MOST:
        running[MOST:] = [f"    and {len(running) - MOST} more"]
    lines = running
    for group in engine["streams"]:
        lines += _ops(f"  on {group['where']}: ", group)
    return lines + _ops("  waits: ", engine["waiting"])


def _ops(head: str, group: Group) -> list[str]:
    more = group["count"] - len(group["ops"])
    return [f"{head}{op}" for op in group["ops"]] + ([f"    and {more} more"] if more else [])


def listen() -> None:
    """Write a dump to stderr at the signal that the environment names, from here on.

    Raises ValueError for an unknown signal. Does nothing on other threads than the main thread,
    which alone may set a handler.
    """
    name = os.environ.get(VARIABLE)
    if not name or threading.current_thread() is not threading.main_thread():
        return
    number = getattr(signal, f"SIG{name.upper().removeprefix('SIG')}", None)
    if not isinstance(number, signal.Signals):
        raise ValueError(f"{VARIABLE}={name}: there is no such signal; set it to USR1, for example")
    signal.signal(number, _say)


def _say(number: int, frame: FrameType | None) -> None:
    # Not by `sys.stderr`, whose code the signal may have interrupted.
    data = f"{dump()}\n".encode(errors="backslashreplace")
    while data:
        data = data[os.write(2, data) :]
