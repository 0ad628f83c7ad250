"""Ctrl-C at the n-th point of the engine that the calling thread passes.

CPython delivers a signal to the main thread only at the start of a function, at a backward jump,
and after a call that is not inlined. So a claim and the instruction that records it are
indivisible. These places are the points. They are counted in the engine, `atomic.py`, the arrays,
the graphs, and the parts of the standard library that these call. The driver is not counted,
because its calls are one instruction on a real GPU.

A second Ctrl-C strikes the handlers of the first. CPython ends the tracing with the first exception
of a tracer, so a profiler strikes then: at the start of a function, or after a call of C. No
handler jumps back without a call.
"""

from __future__ import annotations

import dis
import inspect
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from helpers.repository.checkout import PACKAGE

_OURS = tuple(f"{PACKAGE}/{part}" for part in ("engine/", "atomic.py", "array/", "graph/"))
_DRIVER = f"{PACKAGE}/softgpu/"
_LIBRARY = ("threading.py", "contextlib.py", "weakref.py", "heapq.py", "queue.py", "functools.py")

_JUMPS_BACK = {
    opcode
    for name, opcode in dis.opmap.items()
    if name.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")) and "NO_INTERRUPT" not in name
}
_CALLS = {opcode for name, opcode in dis.opmap.items() if name.startswith("CALL")}
_RESUME = dis.opmap["RESUME"]


class Interrupter:
    """`with Interrupter(at=n):` raises KeyboardInterrupt at the n-th point. `count` is the number
    of points passed, `place` is where it struck. With `at=0` it only counts.

    With `again=m` it strikes once more, at the m-th point after that; `passed_again` is the number
    of these points passed. With `again=0` it only counts them.
    """

    def __init__(self, at: int, again: int | None = None) -> None:
        self.at = at
        self.again = again
        self.count = self.passed_again = 0
        self.place = ""
        # The references are kept because CPython 3.11 may call a tracer that nobody refers to any
        # more. On entering a function it makes the frame object, and for that it may collect
        # garbage. The interrupt then comes in a finaliser, which ends the tracing. Later versions
        # collect garbage elsewhere.
        self._trace = self._called
        self._profile = self._strike_again
        # The last opcode of each frame, and the frames that have called a Python function since.
        self._last: dict[FrameType, int] = {}
        self._inlined: set[FrameType] = set()

    def __enter__(self) -> Interrupter:
        sys.settrace(self._trace)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.settrace(None)
        sys.setprofile(None)
        self._last.clear()
        self._inlined.clear()

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        caller = frame.f_back
        if caller in self._last and not frame.f_code.co_name.startswith("__"):
            self._inlined.add(caller)
        if not _counts(frame):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "return":
            self._last.pop(frame, None)
            self._inlined.discard(frame)
        elif event == "opcode":
            before = self._last.get(frame)
            self._last[frame] = frame.f_code.co_code[frame.f_lasti]
            if self._is_delivered(frame, before):
                self.count += 1
                if self.count == self.at:
                    self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                    if self.again is not None:
                        sys.setprofile(self._profile)
                    raise KeyboardInterrupt
        return self._step

    def _strike_again(self, frame: FrameType, event: str, argument: object) -> None:
        # A profiler that raises as an exception is thrown into a generator ends the generator
        # without its `finally`, as no signal does.
        is_start = event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if (is_start or event == "c_return") and _counts(frame):
            self.passed_again += 1
            if self.passed_again == self.again:
                self.place += f", {frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt

    def _is_delivered(self, frame: FrameType, before: int | None) -> bool:
        """True if a signal could arrive after the instruction `before`."""
        if before in _CALLS:
            is_inlined = frame in self._inlined
            self._inlined.discard(frame)
            return not is_inlined
        return before in _JUMPS_BACK or before == _RESUME


@contextmanager
def told_to_nobody() -> Iterator[None]:
    """Around interrupts in a test's own process. One may come in a finaliser, where nobody can
    handle it, and CPython reports it."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


class Timer:
    """`with Timer(delay_s):` raises KeyboardInterrupt after that time, wherever the thread is then.

    The signal is real, so it also interrupts a sleeping wait. It comes inside the block or not at
    all. It comes after a driver call rather than inside one, as with a driver that is not Python.
    """

    def __init__(self, delay_s: float) -> None:
        self.place = ""
        self._delay_s = delay_s
        self._is_armed = False

    def __enter__(self) -> Timer:
        signal.signal(signal.SIGALRM, self._ring)
        self._is_armed = True
        signal.setitimer(signal.ITIMER_REAL, self._delay_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_armed = False
        # Otherwise the signal may arrive while the interpreter exits, and end the process.
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        # The block may have ended since the signal.
        if self._is_armed and _is_in_driver(frame):
            signal.setitimer(signal.ITIMER_REAL, 20e-6)
        elif self._is_armed:
            self._is_armed = False
            if frame is not None:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            raise KeyboardInterrupt


def _is_in_driver(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(_DRIVER):
        frame = frame.f_back
    return frame is not None


def _counts(frame: FrameType) -> bool:
    while frame.f_code.co_filename.endswith(_LIBRARY):
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(_OURS)
