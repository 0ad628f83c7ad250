"""Floor 1. `Stream`: work that the device does in order.

Every function that takes a stream takes any object with `__cuda_stream__` (cuda.core, CuPy, PyTorch
and numba have it), or nothing, which means the current stream: the stream of the innermost
`with stream:` on this thread, else the device's legacy default stream.
"""

from __future__ import annotations

import operator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda.bindings import driver

from cudasync.driver.context import here
from cudasync.driver.interchange.protocols import stream_handle
from cudasync.driver.memory.in_flight import InFlight
from cudasync.driver.ownership.handles import Owned
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import failure
from cudasync.driver.streams import stream_commands as commands
from cudasync.driver.streams.current_streams import Entered, current_device, entered, given_device
from cudasync.driver.streams.open_captures import is_captured
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TypeAlias

    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.graph.capture import Capture, CaptureMode
    from cudasync.driver.interchange.protocols import SupportsCudaStream
    from cudasync.driver.streams.event import Event

    StreamLike: TypeAlias = "Stream | SupportsCudaStream"

_NOT_READY = 600


@unpicklable("make a Stream there")
class Stream:
    """A queue of work that the device does in order, concurrently with other streams.

    The stream and the legacy default stream do not wait for each other (CU_STREAM_NON_BLOCKING). A
    smaller `priority` goes first; the device clamps it to its range. `with stream:` makes it the
    current stream of this thread (or asyncio task). Any thread may use a stream; work that two
    threads enqueue at once gets either order.
    """

    __slots__ = (
        "__weakref__",
        "_in_flight",
        "_owned",
        "_raw",
        "_tail",
        "fixed_device",
        "priority",
        "workspace",
    )

    def __init__(self, device: DeviceLike | None = None, *, priority: int = 0) -> None:
        device = given_device(device)
        context = device.context
        raw = context.allocate(
            "cuStreamCreateWithPriority",
            driver.cuStreamCreateWithPriority,
            driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value,
            operator.index(priority),
        )
        in_flight = InFlight(raw)
        life = here.token
        assert life is not None, "allocate has entered the context"
        life.in_flight.add(in_flight)

        def destroy(raw: Any) -> Any:
            life.in_flight.discard(in_flight)
            return in_flight.destroy(driver.cuStreamDestroy)

        # None only for a default stream of whichever device is current.
        self.fixed_device: Device | None = device
        self.priority = priority
        self._raw: Any = raw
        # None for a foreign owner: see `borrowed_stream`. Blocking, so that the work and operands
        # of a forgotten stream are not cut short.
        self._owned: Owned | None = Owned(context, raw, destroy, noun="stream", blocking=True)
        self._in_flight = in_flight
        self._tail: Event | None = None
        # Workspace for a library's work on this stream alone: see `blas.handles`.
        self.workspace: Owned | None = None

    @classmethod
    def from_handle(cls, handle: SupportsIndex, device: DeviceLike | None = None) -> Stream:
        """Another library's stream, by its CUstream as an integer: borrowed, never destroyed here.

        The caller must keep the stream alive during its use. 0 and 1 are the legacy default stream,
        2 is the per-thread one, each of `device` (or the current device); for any other handle the
        driver knows the device. Raises ValueError for a negative handle, CudaError for a handle
        that the driver does not know. (cuStreamGetCtx)
        """
        # Imported here and below, since these files import this one.
        from cudasync.driver.streams.borrowed_stream import lent

        return lent(operator.index(handle), device, None)

    @classmethod
    def from_object(cls, stream: StreamLike, device: DeviceLike | None = None) -> Stream:
        """Another library's stream, by its `__cuda_stream__`: borrowed, never destroyed here.

        The object is kept alive; a Stream is returned unchanged. `device` as in `from_handle`.
        Raises TypeError for an object without `__cuda_stream__`.
        """
        if isinstance(stream, Stream):
            return stream
        from cudasync.driver.streams.borrowed_stream import lent

        return lent(stream_handle(stream), device, stream)

    @property
    def device(self) -> Device:
        """The device of the stream's work. For a default stream: this thread's current device."""
        return self.fixed_device or current_device()

    @property
    def handle(self) -> int:
        """The CUstream as an integer. Raises ClosedError once closed."""
        return int(self._own.get())

    @property
    def is_closed(self) -> bool:
        return self._own.is_closed

    @property
    def is_owned(self) -> bool:
        """False for a default stream and for a stream that another library owns."""
        return True

    def enter(self) -> Any:
        """The driver's handle, with the context current on this thread, ready for a call."""
        owned = self._owned
        assert owned is not None
        raw = owned.raw
        if raw is not None and here.token is owned.token is owned.context.token:
            return raw
        return owned.ready()

    record, record_reused = commands.record, commands.record_reused
    wait, _record_tail = commands.wait, commands.record_tail
    launch_host, wait_value = commands.launch_host, commands.wait_value

    def synchronize(self) -> None:
        """Block until all work enqueued so far is done, with the GIL released.

        Raises CudaError for a failure of that work. (cuStreamSynchronize)
        """
        raw = self.enter()
        taken = self._in_flight.take()
        try:
            code = driver.cuStreamSynchronize(raw)[0]
            if code:
                raise failure(code, "cuStreamSynchronize")
        except BaseException:
            # Also an interrupt: the work may go on.
            self._in_flight.restore(taken)
            raise

    def query(self) -> bool:
        """True if all work enqueued so far is done. Never blocks. (cuStreamQuery)"""
        code = driver.cuStreamQuery(self.enter())[0]
        if not code:
            return True
        if int(code) == _NOT_READY:
            return False
        raise failure(code, "cuStreamQuery")

    def keep(self, operand: object, size_bytes: int = 0) -> None:
        """Keep `operand` alive until the work enqueued so far has run.

        Captured work does not run then: the owner of the graph must keep its operands.
        """
        self._in_flight.keep(self, operand, size_bytes)

    @property
    def _own(self) -> Owned:
        assert self._owned is not None, "a borrowed stream has its own ways"
        return self._owned

    def capture(self, mode: CaptureMode = "thread_local") -> Capture:
        """`with stream.capture() as graph:` captures work that is enqueued on the stream inside:
        the work goes into the graph and does not run. `graph.instantiate()` makes it launchable.

        `mode` selects the threads whose calls the driver refuses if they cannot be captured, such
        as a synchronisation: "global" all, "thread_local" this thread, "relaxed" none. Memory that
        the work uses must live as long as the graph. An exception inside ends the capture.

        Raises CudaError for a stream that is captured already, and at the end for a stream that
        joined and was not waited for; ValueError for the legacy default stream.
        (cuStreamBeginCaptureToGraph, cuStreamEndCapture)
        """
        # Imported here, since graphs import this file.
        from cudasync.driver.graph.capture import Capture

        return Capture(self, mode)

    def close(self) -> None:
        """Destroy the stream; its enqueued work still runs. Closing twice is harmless.

        Another library's stream, or a default stream, is not destroyed. (cuStreamDestroy)
        """
        if not self._own.is_closed and len(self._in_flight):
            taken = self._in_flight.take()
            with suppress(CudasyncError):  # In a dead context nothing uses the operands.
                marker = None if is_captured(self._raw) else self.record()
                self._own.context.keep_behind(marker, taken)
        self._own.close()

    def __enter__(self) -> Self:
        entered.set(Entered(self, entered.get()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        here = entered.get()
        assert here is not None
        if here.stream is not self:
            raise RuntimeError("streams entered with `with` must be left in reverse order")
        entered.set(here.outer)

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which libraries share streams: (version 0, handle)."""
        return (0, self.handle)

    def __repr__(self) -> str:
        if self.is_closed:
            return "<Stream closed>"
        if self.fixed_device is None:
            return f"<Stream default {int(self._raw)}>"
        return f"<Stream {int(self._raw):#x} of {self.fixed_device!r}>"
