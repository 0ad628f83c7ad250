"""Floor 1. The primary context of a device: retained once, made current on whatever thread calls.

There is one `Context` per ordinal and process. The driver's primary context is retained at the
first use and kept: every library that works with the device shares it.

True throughout:
- `token` is one life of the context, and another one from the moment of a reset on: the context
  can be entered again once that reset is done;
- garbage is destroyed only where that can not block: what might (freeing memory waits for the
  device) stays until the device is idle, or is being synchronized anyway, or memory runs out.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.ownership.context_life import Life
from cudasync.driver.probe import ensure_driver
from cudasync.driver.result import check, failure
from cudasync.driver.streams.open_captures import Relaxed, is_captured
from cudasync.errors import ClosedError, CudaError
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from cudasync.driver.ownership.context_life import Garbage
    from cudasync.driver.streams.event import Event

_OUT_OF_MEMORY = 2
_LEGACY_STREAM = 1


class _Here(threading.local):
    """The life of which context this thread is in, as far as cudasync has set it."""

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
        """Make the context current on this thread; without a driver call if cudasync already has.

        Another library may have switched the thread to another device since. Calls on explicit
        handles then work all the same or are refused; whatever would silently go to the wrong
        device uses `enter_anew`.
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
            # It was reset meanwhile.
        check(answer, "cuCtxSetCurrent")
        here.token = token

    def handle(self) -> Any:
        """The driver's CUcontext, retained by now."""
        return self._handle or self._retain()

    def is_of(self, handle: Any) -> bool:
        """True if `handle` is this context's CUcontext, as far as it was needed yet."""
        mine = self._handle
        return mine is not None and int(mine) == int(handle)

    def _retain(self) -> Any:
        ensure_driver()
        with self._lock:
            if self._handle is None:
                answer = driver.cuDevicePrimaryCtxRetain(driver.CUdevice(self.ordinal))
                self._handle = check(answer, "cuDevicePrimaryCtxRetain")
            return self._handle

    def synchronize(self) -> None:
        """Block until all work on the device is done; then free what finalisers left."""
        self.enter_anew()
        life = self.token
        held = [(in_flight, in_flight.take()) for in_flight in list(life.in_flight)]
        # What others keep from here on may be for work that comes after the wait.
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
        """End the context with all that lives in it, and its sticky error; it begins anew."""
        ensure_driver()
        with self._lock:
            over = self.token
            # In this order: who sees the next life finds no handle, and waits for the lock.
            self._handle = None
            self.token = Life()
            answer = driver.cuDevicePrimaryCtxReset(driver.CUdevice(self.ordinal))
            if answer[0]:
                # It was refused: all that lives there still does.
                self.token = over
            check(answer, "cuDevicePrimaryCtxReset")
        over.end()

    def allocate(
        self, call: str, function: Callable[..., Any], *arguments: Any, is_placed: bool = False
    ) -> Any:
        """The result of a driver function that creates something, here and now.

        `is_placed` if an argument says where, and not only which context is current: a stream
        that was entered. Where memory has run out and garbage holds some, this waits for the
        device, frees it, and tries again. It disturbs no stream capture, and does not wait if it
        knows of one.
        """
        life = self.token
        if is_placed and not life.garbage and not life.blocking_garbage:
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
                and not any(map(is_captured, _streams(life)))
            ):
                self.synchronize()
                answer = function(*arguments)
        return check(answer, call)

    @property
    def garbage(self) -> deque[Garbage]:
        """What finalisers left, and can be destroyed at any time."""
        return self.token.garbage

    @property
    def blocking_garbage(self) -> deque[Garbage]:
        """What finalisers left, and waits for the device when it is destroyed."""
        return self.token.blocking_garbage

    def _destroy(self, life: Life, garbage: deque[Garbage]) -> None:
        while garbage:
            try:
                destroy, value = garbage.popleft()
            except IndexError:  # Another thread was faster.
                return
            if life is self.token:
                destroy(value)  # A refusal has nobody to go to: the owner is gone.

    def keep_behind(self, marker: Event | None, operand: object) -> None:
        """Keep `operand` alive until `marker` is reached; without one, until all has run."""
        life = self.token
        if marker is None:
            life.kept_for_long.append(operand)
            return
        with Relaxed():
            _forget_kept(life)
        life.kept.append((marker, operand))


def _streams(life: Life) -> list[Any]:
    """The legacy default stream, and ours."""
    ours = [in_flight.raw_stream for in_flight in list(life.in_flight)]
    return [driver.CUstream(_LEGACY_STREAM), *ours]


def _is_idle(life: Life) -> bool:
    """True if none of our streams has work left or is captured, and neither is the legacy default
    stream."""
    return not any(is_captured(raw) or driver.cuStreamQuery(raw)[0] for raw in _streams(life))


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
            # Somebody has reset the device by other means: nothing is left of that work.
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
    """The contexts that somebody asked for so far."""
    return list(_contexts.values())
