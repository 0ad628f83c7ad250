"""The tower. Latches hold a timeline until a test releases it, so that no test needs to sleep.

"Not finished yet" is then a fact and not a race: commands behind a latch on its stream cannot run
before `release`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from cudasync.array.kernels.bundled_ptx import kernel_file
from cudasync.driver import Module, Stream, current_stream, launch, pinned_empty
from cudasync.driver.streams.current_streams import given_device
from cudasync.errors import CudaError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from cudasync.driver.device import DeviceLike

_NOT_SUPPORTED = 801


class Latch:
    """Holds streams of a device until released.

    `with Latch(device) as latch:` releases at the end, whatever happens in between. After a
    release it can hold again. One thread holds and releases; a latch may block any thread.
    """

    # One word for each hold and release, so that the next hold does not catch a stream that has not
    # seen its release yet. Words are allocated ahead, because an allocation might wait for the
    # stream that is held.
    _HOLDS = 1024

    def __init__(self, device: DeviceLike | None = None) -> None:
        self.device = given_device(device)
        self._words = pinned_empty(self._HOLDS, np.uint32)
        self._words[:] = 0
        self._index = 0

    def hold(self, stream: Stream | None = None) -> None:
        """Make `stream` (or the current one) wait here until `release`; return at once."""
        on = stream or current_stream(self.device)
        word = self._words[self._index : self._index + 1]
        try:
            on.wait_value(word.ctypes.data, 1)
        except CudaError as error:
            if error.code != _NOT_SUPPORTED:
                raise
            hold_by_kernel(on, word)
        # The device reads the word until the stream has passed.
        on.keep(word, word.nbytes)

    def release(self) -> None:
        """Release every held stream."""
        self._words[self._index] = 1
        self._index += 1
        if self._index == self._HOLDS:
            self._words = pinned_empty(self._HOLDS, np.uint32)
            self._words[:] = 0
            self._index = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def hold_by_kernel(stream: Stream, word: NDArray[np.uint32]) -> None:
    """Hold `stream` by a kernel that spins until the pinned `word` is not zero.

    For devices that cannot wait for a value in memory.
    """
    module = Module.from_file(kernel_file("latch"), device=stream.device)
    launch(module.kernel("latch"), grid=1, args=(word.ctypes.data,), stream=stream)
    stream.keep(module)


class HostLatch:
    """Holds threads until released, or until a deadline, so that a failing test does not hang."""

    def __init__(self, *, deadline_s: float = 10.0) -> None:
        self.deadline_s = deadline_s
        self._event = threading.Event()

    def wait(self) -> None:
        """Block until released. Raises TimeoutError at the deadline."""
        if not self._event.wait(self.deadline_s):
            raise TimeoutError(f"no thread released the latch within {self.deadline_s} s")

    def release(self) -> None:
        """Release all current and later waiters."""
        self._event.set()

    @property
    def is_released(self) -> bool:
        return self._event.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
