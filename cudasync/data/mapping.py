"""Floor 4. `map`: chunks of samples, each one host op on the workers of the stage.

True throughout:
- chunks are taken from the source by whoever takes from the map, one thread at a time, in order;
- a chunk's outcome is a value: what `fn` raises is in it, so no op fails;
- the order of what is given is that of the source, whatever ends first (unless `ordered=False`).
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync.data.cursors import Cursor, Numbered
from cudasync.data.failures import DataError, Failed, is_failed
from cudasync.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.data.meters import Meter
    from cudasync.engine import Op

# A chunk is to take about this long: then an op's cost is small beside it.
LEAST_S, MOST_S = 1e-3, 10e-3
MOST_SAMPLES = 256


class Mapped(Cursor):
    """`fn` of each sample of the source, computed ahead by `workers` threads."""

    def __init__(
        self,
        source: Cursor,
        fn: Callable[[Any], Any],
        meter: Meter,
        *,
        workers: int,
        ordered: bool,
        on_error: str,
    ) -> None:
        super().__init__(source)
        self._source, self._fn, self.meter = source, fn, meter
        self._ordered, self._on_error = ordered, on_error
        self._engine: Any = Engine("async", workers=workers)
        # Two chunks a worker: one in hand, one ready to begin.
        self._most = meter.capacity = 2 * workers
        self._under_way: deque[Op] = deque()
        self._chunk = 1
        self._given: deque[Any] = deque()
        self._seen = 0
        self._is_over = self._is_stopped = False

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        given = self._given
        while len(found) < count:
            if not given:
                self._fill()
                if not self._under_way:
                    break
                given.extend(self._next_chunk())
                # Before anything is done with these: the workers go on meanwhile.
                self._fill()
                continue
            while given and len(found) < count:
                found.append(given.popleft())
            if is_failed(found):
                self._is_over = self._is_stopped = True
                self._under_way.clear()
        return found

    def advance(self, count: int) -> None:
        if self._on_error == "skip" or self._under_way or self._given:
            super().advance(count)
        else:
            self._source.advance(count)
            self._seen += count

    def _fill(self) -> None:
        while not self._is_over and len(self._under_way) < self._most:
            first = self._seen
            view = None
            items: Sequence[Any]
            if isinstance(self._source, Numbered) and self._source.on_error == "raise":
                # The workers fetch the samples, too.
                view = self._source
                items = view.numbers(self._chunk)
            else:
                items = self._source.take(self._chunk)
            self._is_over = len(items) < self._chunk or is_failed(list(items[-1:]))
            self._seen += len(items)
            if items:
                self._under_way.append(self._push(items, first, view))

    def _push(self, items: Sequence[Any], first: int, view: Numbered | None) -> Op:
        def run() -> tuple[list[Any], float]:
            return self._run(items, first, view)

        op: Op = self._engine.push(run, name=self.meter.stage)
        return op

    def _run(
        self, items: Sequence[Any], first: int, view: Numbered | None
    ) -> tuple[list[Any], float]:
        fn, found = self._fn, []
        skipped = 0
        began = time.perf_counter()
        for at, item in enumerate(items, first):
            if self._is_stopped:
                break
            stage = self.meter.stage
            try:
                if view is not None:
                    stage = view.meter.stage
                    item = view.view[item]
                    stage = self.meter.stage
                elif item.__class__ is Failed:
                    found.append(item)
                    break
                found.append(fn(item))
            except Exception as error:
                if self._on_error == "skip":
                    skipped += 1
                    continue
                found.append(Failed(DataError(stage, at, error)))
                break
        seconds = time.perf_counter() - began
        self.meter.worked(len(found), seconds, skipped)
        return found, seconds

    def _next_chunk(self) -> list[Any]:
        ops = self._under_way
        op = ops[0]
        if not self._ordered:
            op = next((each for each in ops if each.finished), op)
        self.meter.looked(sum(each.finished for each in ops))
        if not op.finished:
            began = time.perf_counter()
            op.wait()
            self.meter.waited(time.perf_counter() - began)
        ops.remove(op)
        found, seconds = op.result()
        if seconds < LEAST_S:
            self._chunk = min(MOST_SAMPLES, 2 * self._chunk)
        elif seconds > MOST_S:
            self._chunk = max(1, self._chunk // 2)
        items: list[Any] = found
        return items

    def stop(self) -> None:
        self._is_over = self._is_stopped = True
        super().stop()

    def close(self) -> None:
        self.stop()
        self._under_way.clear()
        self._engine.close()
        super().close()
