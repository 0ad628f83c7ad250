"""Floor 1. `Event`: a place in a stream's work that other streams and the host can wait for.

An event stands for its last recording. A wait uses the recording at the time of its call; a later
recording does not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.context import here
from cudasync.driver.ownership.handles import Owned
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import failure
from cudasync.driver.streams.current_streams import given_device

if TYPE_CHECKING:
    from typing import Self

    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.streams.stream import StreamLike

_NOT_READY = 600


@unpicklable("make an Event there")
class Event:
    """A place in a stream's work; with `timing=True` also the time it was reached.

    Events without timing are cheaper to wait for. Any thread may use an event.
    """

    __slots__ = ("__weakref__", "_device", "owned", "timing", "was_recorded")

    def __init__(self, device: DeviceLike | None = None, *, timing: bool = False) -> None:
        device = given_device(device)
        context = device.context
        untimed = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
        raw = context.allocate("cuEventCreate", driver.cuEventCreate, 0 if timing else untimed)
        self._device = device
        self.owned = Owned(context, raw, driver.cuEventDestroy, noun="event", blocking=False)
        self.was_recorded = False
        self.timing = timing

    @property
    def device(self) -> Device:
        return self._device

    @property
    def handle(self) -> int:
        """The CUevent as an integer. Raises ClosedError once closed."""
        return int(self.owned.get())

    @property
    def is_closed(self) -> bool:
        return self.owned.is_closed

    def get(self) -> Any:
        """The driver's handle, for a call."""
        return self.owned.get()

    def record(self, stream: StreamLike | None = None) -> Self:
        """Record the event behind all work enqueued so far on `stream`, and return it.

        Without a stream: on the current stream of the event's device. Returns at once.
        Raises ValueError for a stream of another device. (cuEventRecord)
        """
        # Imported here, since streams import this file.
        from cudasync.driver.streams.chosen_stream import as_stream

        target = as_stream(stream, self._device)
        target.record(self)
        return self

    def query(self) -> bool:
        """True if the last recording was reached, or there is none. Never blocks. (cuEventQuery)

        Raises CudaError for a failure of work on the device.
        """
        owned = self.owned
        raw = owned.raw
        if raw is None or not (here.token is owned.token is owned.context.token):
            raw = owned.ready()
        code = driver.cuEventQuery(raw)[0]
        if not code:
            return True
        if int(code) == _NOT_READY:
            return False
        raise failure(code, "cuEventQuery")

    def synchronize(self) -> None:
        """Block until the last recording is reached, with the GIL released.

        Returns at once if there is none. Raises CudaError for a failure of work on the device.
        (cuEventSynchronize)
        """
        code = driver.cuEventSynchronize(self.owned.ready())[0]
        if code:
            raise failure(code, "cuEventSynchronize")

    def elapsed_ms(self, start: Event) -> float:
        """Milliseconds from the recording of `start` to this one's.

        Both events need `timing=True` and a recording, else ValueError; if one of them is not
        reached yet, the driver answers CUDA_ERROR_NOT_READY. (cuEventElapsedTime)
        """
        mine, theirs = self.owned, start.owned
        if (
            not here.token is mine.token is theirs.token is mine.context.token
            or not (self.was_recorded and self.timing and start.was_recorded and start.timing)
            or (end := mine.raw) is None
            or (begin := theirs.raw) is None
        ):
            begin, end = start._timed("start"), self._timed("end")
            self._device.context.enter()
        code, elapsed = driver.cuEventElapsedTime(begin, end)
        if code:
            raise failure(code, "cuEventElapsedTime")
        return float(elapsed)

    def _timed(self, role: str) -> Any:
        """The handle of an event that has a time, once it is reached; else ValueError."""
        if not self.timing:
            raise ValueError(f"the {role} event was made without timing: make it with timing=True")
        raw = self.owned.get()
        if not self.was_recorded:
            raise ValueError(
                f"the {role} event was never recorded: call stream.record(event) first"
            )
        return raw

    def close(self) -> None:
        """Destroy the event; present waits are not affected. Closing twice is harmless.

        (cuEventDestroy)
        """
        self.owned.close()

    def __repr__(self) -> str:
        if self.owned.is_closed:
            return "<Event closed>"
        return f"<Event {self.handle:#x} of {self._device!r}>"
