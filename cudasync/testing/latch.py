"""The tower. Latches: they hold a timeline until a test lets it go, so that no test needs to sleep.

"Not finished yet" is then a fact and not a race: what comes behind a latch on its stream can not
have run before `release`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from cudasync.driver import PinnedBuffer, Stream, current_device, current_stream

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from cudasync.driver import Device


class Latch:
    """Holds streams of a device until released.

    `with Latch(device) as latch:` releases at the end, whatever happens in between. After a
    release it can hold again. One thread holds and releases; any thread may be held up by it.
    """

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or current_device()
        self._buffer = PinnedBuffer(4, self.device)
        self._word = self._buffer.view((1,), np.uint32)
        self._word[0] = 0
        # What the word has to come to for the streams held now. Counting up, not setting a flag,
        # lets a latch hold again while a stream has not yet seen the last release.
        self._awaited = 1

    def hold(self, stream: Stream | None = None) -> None:
        """Make `stream` (or the current one) wait here until `release`; return at once."""
        on = stream or current_stream(self.device)
        on.wait_value(self._buffer.ptr, self._awaited)
        # The stream reads the word until it has passed.
        on.keep(self._word, self._word.nbytes)

    def release(self) -> None:
        """Let go of every stream held."""
        self._word[0] = self._awaited
        self._awaited += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class HostLatch:
    """Holds threads until released, or until its deadline: a test that goes wrong does not hang."""

    def __init__(self, *, deadline_s: float = 10.0) -> None:
        self.deadline_s = deadline_s
        self._event = threading.Event()

    def wait(self) -> None:
        """Block until released. Raises TimeoutError at the deadline."""
        if not self._event.wait(self.deadline_s):
            raise TimeoutError(f"nobody released the latch within {self.deadline_s} s")

    def release(self) -> None:
        """Let every waiter go, and all that come later."""
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
