"""The tracer of the freeze test: counts a thread's bytecodes and suspends the thread at one.

The code under test does not know of the tracer. A suspended thread blocks inside the tracer until
`release`, and keeps every lock it has. Threads that the tracer suspends must be daemons, so that a
process can end.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from helpers.repository.checkout import PACKAGE

# A thread without a step for this long is taken to be asleep. A wrong guess does not change the
# verdict: the scenario only goes on a little early.
QUIET_S = 0.03
# The most time of a thread that does not sleep. Only a failing run needs it.
PATIENCE_S = 20.0
# A tool number of `sys.monitoring` that neither coverage nor a profiler takes.
TOOL = 4


def is_library(path: str) -> bool:
    """True for the files of the library, without the software GPU."""
    return path.startswith(str(PACKAGE)) and not path.startswith(str(PACKAGE / "softgpu"))


class Freezer:
    """Counts the bytecodes of the threads it is installed in, and suspends at number `at`."""

    def __init__(
        self, at: int | None, watched: Callable[[str], bool], most: int | None = None
    ) -> None:
        self.at = at
        # A thread with this many steps repeats itself: see `settle`.
        self.most = most
        self.points = 0
        # The place of the suspension, as "file:line in function, bytecode n".
        self.where = ""
        self.is_frozen = False
        self.watched = watched
        # Set when a thread is traced: one that has not come so far is not asleep.
        self._is_installed = threading.Event()
        # Set when the thread has been suspended, or has finished without a suspension.
        self._halted = threading.Event()
        self._released = threading.Event()
        self._threads: set[int] = set()
        self._is_over = False

    def __enter__(self) -> None:
        self.install()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def install(self) -> None:
        """Trace the calling thread from here on, including the watched frames that it is in."""
        self._threads.add(threading.get_ident())
        _trace(self)
        self._is_installed.set()

    def stop(self) -> None:
        """Stop counting, in every thread."""
        self._is_over = True
        self._halted.set()
        self._is_installed.set()

    def release(self) -> None:
        """Let the suspended thread go, and suspend no thread from here on."""
        self.stop()
        self._released.set()

    def settle(self, *, may_sleep: bool = True) -> None:
        """Wait until the thread is suspended, has finished, or seems to be asleep.

        The wait also ends at the thread's step limit, because a thread that naps would go on for
        ever.
        """
        self._is_installed.wait(PATIENCE_S)
        if not may_sleep:
            self._halted.wait(PATIENCE_S)
        before = -1
        while before != self.points and (self.most is None or self.points < self.most):
            before = self.points
            if self._halted.wait(QUIET_S):
                break

    def watches(self, code: CodeType) -> bool:
        return self.watched(code.co_filename)

    def step(self, frame: FrameType) -> None:
        """A watched frame is about to run a bytecode, in any thread."""
        if self._is_over or threading.get_ident() not in self._threads:
            return
        self.points += 1
        if self.points != self.at:
            return
        code = frame.f_code
        file = Path(code.co_filename).name
        self.where = f"{file}:{frame.f_lineno} in {code.co_qualname}, bytecode {frame.f_lasti}"
        self.is_frozen = True
        self._halted.set()
        self._released.wait()

    @property
    def is_over(self) -> bool:
        return self._is_over


def _trace_thread(freezer: Freezer) -> None:
    """Python 3.11: trace the calling thread."""

    def follow(frame: FrameType) -> None:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if freezer.is_over:
            sys.settrace(None)
            return None
        if event == "call":
            if not freezer.watches(frame.f_code):
                return None
            follow(frame)
        elif event == "opcode":
            freezer.step(frame)
            # On return, the tracer writes its copy of the variables back to closure cells. Read the
            # variables again, to keep what other threads have written meanwhile.
            _ = frame.f_locals
        return trace

    each: FrameType | None = sys._getframe(1)
    while each is not None:
        if freezer.watches(each.f_code):
            follow(each)
            each.f_trace = trace
        each = each.f_back
    # Last, so that the lines above are not counted.
    sys.settrace(trace)


def _monitor_thread(freezer: Freezer) -> None:
    """From Python 3.12 on: an instrumented bytecode of any thread calls us."""
    monitoring = sys.monitoring
    if monitoring.get_tool(TOOL) is None:
        monitoring.use_tool_id(TOOL, "freeze")
        monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, _step)
    _traced[threading.get_ident()] = freezer
    if _watched[-1:] != [freezer.watched]:
        # Switch bytecodes on again that the previous freezer did not watch.
        _watched[:] = [freezer.watched]
        monitoring.restart_events()
    if not monitoring.get_events(TOOL):
        monitoring.set_events(TOOL, monitoring.events.INSTRUCTION)


def end_tracing() -> None:
    """End the instrumentation of this process. Switching is too slow to do for each freezer."""
    if sys.version_info >= (3, 12) and sys.monitoring.get_tool(TOOL) is not None:
        sys.monitoring.set_events(TOOL, 0)


# The freezer of each thread that has one, from Python 3.12 on.
_traced: dict[int, Freezer] = {}
# The filter of the last freezer.
_watched: list[Callable[[str], bool]] = []


def _step(code: CodeType, offset: int) -> Any:
    me = threading.get_ident()
    freezer = _traced.get(me)
    if freezer is None:
        return None
    if freezer.is_over:
        _traced.pop(me, None)
        return None
    if not freezer.watches(code):
        # No other freezer at this time watches this code either.
        return sys.monitoring.DISABLE
    freezer.step(sys._getframe(1))
    return None


_trace = _trace_thread if sys.version_info < (3, 12) else _monitor_thread
