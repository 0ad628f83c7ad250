"""Floor 1. The primary context of a device: retained once, made current on the calling thread.

There is one `Context` per ordinal and process. The driver's primary context is retained at the
first use and kept: every library that works with the device shares it.

Invariants:
- `token` is the present `Life` of the context; a reset begins another. The context can be entered
  again once the reset is done;
- garbage is destroyed only where that cannot block. Garbage that might block (freeing memory waits
  for the device) stays until the device is idle, is synchronized anyway, or memory runs out.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.memory.allocations import ALLOCATIONS
from cudasync.driver.ownership.context_life import Life
from cudasync.driver.probe import ensure_driver
from cudasync.driver.result import check, failure
from cudasync.driver.streams.open_captures import Relaxed, is_captured
from cudasync.errors import STICKY_CODES, ClosedError, CudaError
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from cudasync.driver.memory.in_flight import InFlight
    from cudasync.driver.ownership.context_life import Garbage
    from cudasync.driver.streams.event import Event

_OUT_OF_MEMORY = 2
_LEGACY_STREAM = 1
_START_ANEW = (
    "the device had a fault in this process, and its driver gives the process no new context, also "
    "after a reset: start a new process"
)
# So often a thread that cannot ask about a stream looks again.
_LOOKS = 100


class _Here(threading.local):
    """The `Life` of the context that cudasync last made current on this thread."""

    token: Life | None = None


here = _Here()


class Context:
    """The primary context of one device."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.token = Life()
        # Held while the driver retains or resets.
        self._lock = Lock()
        # None until it is retained in this life.
        self._handle: Any = None

    def enter(self) -> None:
        """Make the context current on this thread; no driver call if cudasync already has.

        Another library may have switched the thread to another device since. Calls on explicit
        handles then still work or are refused; calls that would silently use the wrong device use
        `enter_anew`.
        """
        if here.token is not self.token:
            self.enter_anew()

    def enter_anew(self) -> None:
        """Make the context current on this thread, whatever is current there."""
        while True:
            token = self.token
            handle = self._handle
            if handle is None:
                handle = self._retain()
            answer = driver.cuCtxSetCurrent(handle)
            if token is self.token:
                break
            # The context was reset meanwhile.
        check(answer, "cuCtxSetCurrent")
        here.token = token

    def handle(self) -> Any:
        """The driver's CUcontext, retained if it was not."""
        return self._handle or self._retain()

    def is_of(self, handle: Any) -> bool:
        """True if `handle` is this context's CUcontext; False if that is not retained yet."""
        mine = self._handle
        return mine is not None and int(mine) == int(handle)

    def _retain(self) -> Any:
        ensure_driver()
        with self._lock:
            if self._handle is None:
                answer = driver.cuDevicePrimaryCtxRetain(driver.CUdevice(self.ordinal))
                if int(answer[0]) in STICKY_CODES:
                    raise failure(answer[0], "cuDevicePrimaryCtxRetain", _START_ANEW)
                self._handle = check(answer, "cuDevicePrimaryCtxRetain")
            return self._handle

    def synchronize(self) -> None:
        """Block until all work on the device is done; then destroy the garbage of finalisers."""
        self.enter_anew()
        life = self.token
        held = [(in_flight, in_flight.take()) for in_flight in list(life.in_flight)]
        # Operands that other threads keep from here on may belong to work after the wait.
        for_long, life.kept_for_long = life.kept_for_long, []
        try:
            code = driver.cuCtxSynchronize()[0]
            if code:
                raise failure(code, "cuCtxSynchronize")
        except BaseException:
            # Also an interrupt: the work may go on.
            for in_flight, taken in held:
                in_flight.restore(taken)
            life.kept_for_long.append(for_long)
            raise
        del held, for_long
        with Relaxed():
            _forget_kept(life)
            self._destroy(life, life.garbage)
            self._destroy(life, life.blocking_garbage)

    def reset(self) -> None:
        """End the context and all its objects; a new life begins, if the driver grants one."""
        ensure_driver()
        with self._lock:
            over = self.token
            gone = ALLOCATIONS.of_device(self.ordinal)
            # In this order: a thread that sees the next life finds no handle, and waits for the
            # lock.
            self._handle = None
            self.token = Life()
            answer = driver.cuDevicePrimaryCtxReset(driver.CUdevice(self.ordinal))
            if answer[0]:
                # The driver refused the reset: all objects still exist.
                self.token = over
            check(answer, "cuDevicePrimaryCtxReset")
            # Still under the lock: nobody has memory of the next life at these addresses.
            ALLOCATIONS.tell_of_end(gone)
        over.end()

    def allocate(
        self, call: str, function: Callable[..., Any], *arguments: Any, is_placed: bool = False
    ) -> Any:
        """Call a driver function that creates something, and return its result.

        `is_placed` if an argument determines the place (an entered stream), not only the current
        context. If memory has run out and garbage holds some, this waits for the device, frees the
        garbage, and tries again. It disturbs no stream capture, and does not wait if it knows of
        one.
        """
        life = self.token
        if is_placed and not life.garbage and not life.blocking_garbage:
            with Relaxed():
                return check(function(*arguments), call)
        self.enter_anew()
        life = self.token
        with Relaxed():
            self._destroy(life, life.garbage)
            if life.blocking_garbage and _is_idle(life):
                self._destroy(life, life.blocking_garbage)
            answer = function(*arguments)
            if (
                answer[0]
                and int(answer[0]) == _OUT_OF_MEMORY
                and life.blocking_garbage
                and not _may_be_captured(life)
            ):
                self.synchronize()
                answer = function(*arguments)
        return check(answer, call)

    @property
    def garbage(self) -> deque[Garbage]:
        """Garbage of finalisers that can be destroyed at any time."""
        return self.token.garbage

    @property
    def blocking_garbage(self) -> deque[Garbage]:
        """Garbage of finalisers that waits for the device when it is destroyed."""
        return self.token.blocking_garbage

    def _destroy(self, life: Life, garbage: deque[Garbage]) -> None:
        while garbage:
            try:
                destroy, value = garbage.popleft()
            except IndexError:  # Another thread was faster.
                return
            if life is self.token:
                destroy(value)  # A refusal is ignored: the owner is gone.

    def keep_behind(self, marker: Event | None, operand: object) -> None:
        """Keep `operand` alive until `marker` is reached; without one, until all has run."""
        life = self.token
        if marker is None:
            life.kept_for_long.append(operand)
            return
        with Relaxed():
            _forget_kept(life)
        life.kept.append((marker, operand))


def _is_idle(life: Life) -> bool:
    """True if none of our streams has work left or is captured, and neither is the legacy default
    stream. False if another thread asks about a stream, or ends it, just now."""
    if _is_busy(driver.CUstream(_LEGACY_STREAM)):
        return False
    return all(each.ask(_is_busy) is False for each in list(life.in_flight))


def _is_busy(raw: Any) -> bool:
    return is_captured(raw) or bool(driver.cuStreamQuery(raw)[0])


def _may_be_captured(life: Life) -> bool:
    """True if one of our streams or the legacy default stream is captured. Also if another thread
    asks about a stream for long: it may be suspended there."""
    if is_captured(driver.CUstream(_LEGACY_STREAM)):
        return True
    return any(_is_captured_or_unclear(life, each) for each in list(life.in_flight))


def _is_captured_or_unclear(life: Life, each: InFlight) -> bool:
    for _ in range(_LOOKS):
        answer = each.ask(is_captured)
        if answer is not None or each not in life.in_flight:
            return bool(answer)
        time.sleep(0)
    return True


def _forget_kept(life: Life) -> None:
    kept = life.kept
    while kept:
        try:
            first = kept.popleft()
        except IndexError:
            return
        try:
            is_reached = first[0].query()
        except ClosedError:
            # The device was reset meanwhile.
            is_reached = True
        except CudaError as error:
            if error.name != "CUDA_ERROR_INVALID_HANDLE":
                raise
            # Another library has reset the device: nothing is left of that work.
            is_reached = True
        if not is_reached:
            kept.appendleft(first)
            return


_contexts: dict[int, Context] = {}


def context_of(ordinal: int) -> Context:
    """The one Context of a device. The ordinal is not checked."""
    # dict.setdefault is one C call: all threads get the same context.
    return _contexts.get(ordinal) or _contexts.setdefault(ordinal, Context(ordinal))


def contexts() -> list[Context]:
    """The contexts requested so far."""
    return list(_contexts.values())
