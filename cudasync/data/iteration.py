"""Floor 4. One pass of the consuming loop over a pipeline."""

from __future__ import annotations

import time
from _thread import start_new_thread
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.data.failures import Failed
from cudasync.data.meters import Meter
from cudasync.data.run_state import Opening

if TYPE_CHECKING:
    from cudasync.data.cursors import Cursor
    from cudasync.data.pipeline import Pipeline


class Run:
    """One pass of the consuming loop over a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        pipeline._opening, pipeline._loop = Opening(pipeline._chosen), Meter("loop")
        self._cursor: Cursor | None = None
        self._began = time.perf_counter()
        self._cursor = pipeline._open((pipeline._epoch,), pipeline._opening)
        pipeline._delivered, pipeline._resumes_at = pipeline._resumes_at, 0
        if pipeline._delivered:
            self._cursor.advance(pipeline._delivered)

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> Any:
        if self._cursor is None:
            raise StopIteration
        pipeline = self._pipeline
        loop = pipeline._loop
        began = time.perf_counter()
        found = self._cursor.take(1)
        ended = time.perf_counter()
        if not found:
            self.close()
            pipeline._epoch, pipeline._delivered = pipeline._epoch + 1, 0
            raise StopIteration
        (item,) = found
        if item.__class__ is Failed:
            self.close()
            raise item.error
        loop.items += 1
        loop.waited_s += ended - began
        loop.busy_s = ended - self._began
        pipeline._delivered += 1
        return item

    def close(self) -> None:
        """End the work under way, and wait for its end."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.stop()
            cursor.close()

    def __del__(self) -> None:
        # A finaliser may run anywhere, also inside of work that `close` waits for. A bare thread
        # takes no lock to start. When the interpreter ends there is no thread, and everything ends
        # anyhow.
        if (cursor := getattr(self, "_cursor", None)) is not None:
            cursor.stop()
            with suppress(RuntimeError):
                start_new_thread(cursor.close, ())
