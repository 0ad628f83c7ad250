"""Floor 4. The worker processes of one `map`: an idle process takes each chunk."""

from __future__ import annotations

import pickle
import time
from queue import LifoQueue
from typing import TYPE_CHECKING, Any

from cudasync.data.chunks import Outcome, done
from cudasync.data.processes.worker import PATIENCE_S, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.data.views import View

# A dataset that pickles to more is not sent to the processes: its samples are.
_LARGEST_VIEW = 16 << 20


def pickled(fn: Callable[[Any], Any]) -> bytes:
    """`fn`, pickled for the processes. TypeError if it cannot be pickled."""
    try:
        return pickle.dumps(fn)
    except Exception as error:
        raise TypeError(
            f"map(processes=True) sends {fn!r} to other processes, but the function cannot be "
            f"pickled ({error}): give a function that a module defines, or a functools.partial "
            f"of one"
        ) from error


class Crew:
    """Up to `size` processes that do chunks, each for one thread at a time."""

    def __init__(self, stage: str, size: int, fn: bytes, view: View | None) -> None:
        self._view = None if view is None else _small(view)
        workers = [Worker(f"{stage} {number}", fn, self._view) for number in range(size)]
        # A thread waits here if all are busy; the engine adds a thread for one that blocks. The
        # last used comes first, so no more processes start than are needed.
        self._idle: LifoQueue[Worker] = LifoQueue()
        for each in reversed(workers):
            self._idle.put(each)
        self._workers = workers

    def done(
        self,
        items: Sequence[Any],
        first: int,
        view: View | None,
        *,
        skips: bool,
        is_stopped: Callable[[], bool],
    ) -> Outcome:
        """`chunks.done`, in an idle process.

        A small dataset is in the process already, so numbers are sent; otherwise the samples are.
        """
        fetched = None
        is_numbers = view is not None and self._view is not None
        if view is not None and not is_numbers:
            fetched = done(None, items, first, view, skips=skips, is_stopped=is_stopped)
            items = fetched.found
        if not items or is_stopped():
            return fetched or Outcome()
        worker = self._idle.get()
        what = f"samples {first} to {first + len(items) - 1}" if items[1:] else f"sample {first}"
        try:
            outcome = worker.done(items, what, is_numbers=is_numbers, skips=skips)
        finally:
            self._idle.put(worker)
        if fetched is not None:
            outcome.skipped += fetched.skipped
            outcome.seconds += fetched.seconds
            outcome.cpu_s += fetched.cpu_s
            if outcome.error is None:
                outcome.error, outcome.failed_at = fetched.error, fetched.failed_at
                outcome.was_fetched = fetched.was_fetched
        return outcome

    def close(self) -> None:
        """End the processes: each after its current chunk, or killed after some seconds."""
        until = time.monotonic() + PATIENCE_S
        for each in self._workers:
            each.hang_up(until)
        for each in self._workers:
            each.join(until)


class _TooLargeError(Exception):
    pass


class _Limited:
    """A file that refuses to grow beyond `_LARGEST_VIEW`."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._left = _LARGEST_VIEW

    def write(self, part: Any) -> int:
        size = memoryview(part).nbytes
        self._left -= size
        if self._left < 0:
            raise _TooLargeError
        self.parts.append(bytes(part))
        return size


def _small(view: View) -> bytes | None:
    """The pickled dataset; None if it is large or cannot be pickled."""
    file = _Limited()
    try:
        pickle.Pickler(file, 5).dump(view)
    except Exception:
        return None
    return b"".join(file.parts)
