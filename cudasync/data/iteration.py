"""Floor 4. One iteration over a pipeline, and its position.

True throughout:
- iterations of one pipeline share no state, so none of them changes the items of another;
- the work of an iteration is closed once, by the first who asks, and all others who ask wait for
  that. A dropped iterator is closed by a thread of its own.
"""

from __future__ import annotations

import time
from _thread import start_new_thread
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.data.cursors import Cursor
from cudasync.data.failures import Failed
from cudasync.data.meters import Meter, summed
from cudasync.data.run_state import Opening
from cudasync.errors import ClosedError
from cudasync.locks import Lock

if TYPE_CHECKING:
    from cudasync.data.meters import PipelineStats
    from cudasync.data.pipeline import Pipeline


class Position(NamedTuple):
    """An epoch, and the number of its items that a loop received."""

    epoch: int
    delivered: int


class Run:
    """An iterator over one epoch of a pipeline, with a position of its own.

    One thread at a time may ask for items. An iterator that was closed before its end raises
    ClosedError, so that no loop takes the end of the work for the end of the data.
    """

    def __init__(self, pipeline: Pipeline, begin: Position) -> None:
        """ValueError if the epoch has fewer items than `begin` says."""
        self._pipeline, self._position = pipeline, begin
        self._opening, self._loop = Opening(pipeline._chosen), Meter("loop")
        # Whether the epoch came to its end, or to a failure.
        self._is_over = False
        self._began = time.perf_counter()
        self._work = Work(pipeline._open((begin.epoch,), self._opening), pipeline._works)
        try:
            there = self._work.cursor.advance(begin.delivered) if begin.delivered else 0
            if there < begin.delivered:
                raise ValueError(
                    f"the restored state says that {begin.delivered} items of epoch "
                    f"{begin.epoch} were delivered, but that epoch has {there}: restore a state "
                    f"of a pipeline that was made the same way, over the same data"
                )
        except BaseException:
            self.close()
            raise

    @property
    def is_under_way(self) -> bool:
        """False after the end, after a failure, and when closed."""
        return not (self._is_over or self._work.is_stopped)

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> Any:
        if self._is_over:
            raise StopIteration
        if self._work.is_stopped:
            raise _closed()
        began = time.perf_counter()
        try:
            found = self._work.cursor.take(1)
        except Exception:
            if self._work.is_stopped:
                raise _closed() from None
            raise
        ended = time.perf_counter()
        if self._work.is_stopped:  # Another thread closed it meanwhile, so `found` may be anything.
            raise _closed()
        if not found:
            self._is_over = True
            self.close()
            self._position = Position(self._position.epoch + 1, 0)
            self._pipeline._ended(self._position)
            raise StopIteration
        (item,) = found
        if item.__class__ is Failed:
            self.close()
            self._is_over = True
            raise item.error
        loop = self._loop
        loop.items += 1
        loop.waited_s += ended - began
        loop.busy_s = ended - self._began
        epoch, delivered = self._position
        self._position = Position(epoch, delivered + 1)
        return item

    def state(self) -> dict[str, int]:
        """The position of this iteration, for `Pipeline.restore`. ValueError behind
        `ordered=False`."""
        self._pipeline._raise_unless_ordered()
        return self._position._asdict()

    def stats(self) -> PipelineStats:
        """The counts of this iteration."""
        return summed(self._opening.meters(), self._loop)

    def close(self) -> None:
        """End the work under way, and wait for its end. Closing twice is harmless."""
        self._leave()
        self._work.close()

    def _leave(self) -> None:
        if self.is_under_way:
            self._pipeline._left_at = self._position

    def __del__(self) -> None:
        # A finaliser may run anywhere, also inside of work that `close` waits for. A bare thread
        # takes no lock to start. When the interpreter ends there is no thread, and everything ends
        # anyhow.
        work = getattr(self, "_work", None)
        if work is not None and not work.is_closed:
            self._leave()
            work.stop()
            with suppress(RuntimeError):
                start_new_thread(work.close, ())


def _closed() -> ClosedError:
    return ClosedError(
        "this iteration was closed before its end, by close() or restore(): begin a new one, and "
        "leave a loop by `break`"
    )


class Work:
    """The cursor of one iteration, and all that is behind it; `open_works` has it until the end."""

    def __init__(self, cursor: Cursor, open_works: set[Work]) -> None:
        self.cursor, self._open_works = cursor, open_works
        self._closing = Lock()
        self.is_stopped = self.is_closed = False
        open_works.add(self)

    def stop(self) -> None:
        """Tell the work that its results are not wanted. Never blocks."""
        self.is_stopped = True
        self.cursor.stop()

    def close(self) -> None:
        """End the work, and wait for its end, whichever thread ends it."""
        self.stop()
        with self._closing:
            if not self.is_closed:
                self.cursor.close()
                # The iterator may live on; the cursor and its buffers need not.
                self.cursor = Cursor()
                self.is_closed = True
                self._open_works.discard(self)
