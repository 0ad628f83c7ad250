"""Floor 5. The watchdog of collectives on a device: it aborts the communicator at a failure.

A command that waits on a stream for another rank waits for ever. While collectives are under way, a
thread checks NCCL and the clock several times a second. At an error or a deadline it aborts the
communicator. The device's part then ends, and these collectives are marked as failed, since their
results are not valid.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync.distributed.work import Work

if TYPE_CHECKING:
    from collections.abc import Generator

    from cudasync.distributed.nccl_library import Link
    from cudasync.engine import Op

_PERIOD_S = 0.1


class WatchedWork(Work):
    """A collective on a device; the error of its communicator is its `failure`."""

    __slots__ = ("failure",)

    def __init__(self, name: str, mark: Op | None) -> None:
        super().__init__(name, mark)
        self.failure: BaseException | None = None

    def wait(self, timeout: float | None = None) -> None:
        """As `Work.wait`; also CollectiveTimeout or RankFailed if it was aborted."""
        super().wait(timeout)
        if self.failure is not None:
            raise self.failure

    def exception(self) -> BaseException | None:
        """The exception that a wait raises; blocks until the end."""
        return super().exception() or self.failure

    def __await__(self) -> Generator[Any, None, Any]:
        yield from super().__await__()
        if self.failure is not None:
            raise self.failure


class Watchdog:
    """A daemon thread, from the first collective until `close`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        # Callers append and the thread takes; each is one C call.
        self._new: deque[tuple[float, WatchedWork]] = deque()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, work: WatchedWork) -> None:
        """Watch a pushed `work`: it has the communicator's `timeout`, from now on."""
        self._new.append((time.monotonic() + self._link.timeout, work))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cudasync nccl", daemon=True)
            self._thread.start()
        self._bell.set()

    def close(self) -> None:
        """End the thread and wait for its end. Then no thread queries the communicator any more."""
        self._is_closed = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        under_way: list[tuple[float, WatchedWork]] = []
        while not self._is_closed:
            if not under_way:
                self._bell.wait()
            self._bell.clear()
            while self._new:
                under_way.append(self._new.popleft())
            under_way = [each for each in under_way if not each[1].is_over]
            self._look(under_way)
            if under_way:
                self._bell.wait(_PERIOD_S)

    def _look(self, under_way: list[tuple[float, WatchedWork]]) -> None:
        for deadline, work in under_way:
            self._link.look(work.name)
            if time.monotonic() > deadline:
                self._link.abort(self._link.late(work.name))
        if self._link.broken_by is not None:
            for _, work in under_way:
                work.failure = work.failure or self._link.broken_by
