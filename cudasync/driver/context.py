"""Floor 1. The primary context of a device: retained once, made current on whatever thread calls.

There is one `Context` per ordinal and process. The driver's primary context is retained at the
first use and kept: every library that works with the device shares it.

True throughout:
- `token` stands for one life of the context and changes with every reset;
- garbage is destroyed only where that can not block: what might (freeing memory waits for the
  device) stays until the device is idle, or is being synchronized anyway, or memory runs out.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.capturing import Relaxed, is_captured
from cudasync.driver.probe import ensure_driver
from cudasync.driver.result import check, failure
from cudasync.errors import CudaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from cudasync.driver.event import Event
    from cudasync.driver.in_flight import InFlight

    # What a finaliser noted: how to destroy what, and the life of the context it was made in.
    Garbage: TypeAlias = tuple[Callable[[Any], Any], Any, object]

_OUT_OF_MEMORY = 2
_LEGACY_STREAM = 1


class _Here(threading.local):
    """The life of which context this thread is in, as far as cudasync has set it."""

    token: object | None = None


here = _Here()


class Context:
    """The primary context of one device."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.token = object()
        # One for each of our streams that the driver still has, garbage or not.
        self.in_flight: set[InFlight] = set()
        self.garbage: deque[Garbage] = deque()
        self.blocking_garbage: deque[Garbage] = deque()
        self._kept: deque[tuple[Event, object]] = deque()
        # What has no event behind it: until the device is synchronized.
        self._kept_for_long: list[object] = []
        self._lock = threading.Lock()
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
        token = self.token
        handle = self._handle
        if handle is None:
            handle = self._retain()
        check(driver.cuCtxSetCurrent(handle), "cuCtxSetCurrent")
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
        held = [(in_flight, in_flight.take()) for in_flight in list(self.in_flight)]
        # What others keep from here on may be for work that comes after the wait.
        for_long, self._kept_for_long = self._kept_for_long, []
        try:
            code = driver.cuCtxSynchronize()[0]
            if code:
                raise failure(code, "cuCtxSynchronize")
        except BaseException:
            # Also an interrupt: the work may go on.
            for in_flight, taken in held:
                in_flight.restore(taken)
            self._kept_for_long.append(for_long)
            raise
        del held, for_long
        with Relaxed():
            self._forget_kept()
            self._destroy(self.garbage)
            self._destroy(self.blocking_garbage)

    def reset(self) -> None:
        """End the context with all that lives in it, and its sticky error; it begins anew."""
        ensure_driver()
        with self._lock:
            self.token = object()
            self._handle = None
            ended = list(self.in_flight)
            before = self._kept, self._kept_for_long, self.garbage, self.blocking_garbage
            # What others keep from here on may be of the next life.
            self._kept, self._kept_for_long = deque(), []
            self.garbage, self.blocking_garbage = deque(), deque()
            answer = driver.cuDevicePrimaryCtxReset(driver.CUdevice(self.ordinal))
            if answer[0]:
                self._kept.extend(before[0])
                self._kept_for_long.extend(before[1])
                self.garbage.extend(before[2])
                self.blocking_garbage.extend(before[3])
            check(answer, "cuDevicePrimaryCtxReset")
        # The work is over one way or another: nothing uses what was kept for it.
        for each in ended:
            self.in_flight.discard(each)

    def allocate(
        self, call: str, function: Callable[..., Any], *arguments: Any, is_placed: bool = False
    ) -> Any:
        """The result of a driver function that creates something, here and now.

        `is_placed` if an argument says where, and not only which context is current: a stream
        that was entered. Where memory has run out and garbage holds some, this waits for the
        device, frees it, and tries again. It disturbs no stream capture, and does not wait if it
        knows of one.
        """
        if is_placed and not self.garbage and not self.blocking_garbage:
            return check(function(*arguments), call)
        self.enter_anew()
        with Relaxed():
            self._destroy(self.garbage)
            if self.blocking_garbage and self._is_idle():
                self._destroy(self.blocking_garbage)
            answer = function(*arguments)
            if (
                answer[0]
                and int(answer[0]) == _OUT_OF_MEMORY
                and self.blocking_garbage
                and not any(map(is_captured, self._streams()))
            ):
                self.synchronize()
                answer = function(*arguments)
        return check(answer, call)

    def _streams(self) -> list[Any]:
        """The legacy default stream, and ours."""
        ours = [in_flight.raw_stream for in_flight in list(self.in_flight)]
        return [driver.CUstream(_LEGACY_STREAM), *ours]

    def _is_idle(self) -> bool:
        """True if none of our streams has work left or is captured, and neither is the legacy
        default stream."""
        return not any(is_captured(raw) or driver.cuStreamQuery(raw)[0] for raw in self._streams())

    def _destroy(self, garbage: deque[Garbage]) -> None:
        while garbage:
            try:
                destroy, value, token = garbage.popleft()
            except IndexError:  # Another thread was faster.
                return
            if token is self.token:
                destroy(value)  # A refusal has nobody to go to: the owner is gone.

    def keep_behind(self, marker: Event | None, operand: object) -> None:
        """Keep `operand` alive until `marker` is reached; without one, until all has run."""
        if marker is None:
            self._kept_for_long.append(operand)
            return
        with Relaxed():
            self._forget_kept()
        self._kept.append((marker, operand))

    def _forget_kept(self) -> None:
        kept = self._kept
        while kept:
            try:
                first = kept.popleft()
            except IndexError:
                return
            try:
                is_reached = first[0].query()
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
