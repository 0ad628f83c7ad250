"""Floor 4. `map`: chunks of samples, each one host op on the workers of the stage.

True throughout:
- the taker of the map takes chunks from the source, one thread at a time, in order;
- a chunk's outcome is a value, which contains an exception of `fn`, so no op fails;
- items come in the order of the source, whichever chunk ends first (unless `ordered=False`).
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.data.chunks import Outcome, done
from cudasync.data.concurrency import AsChosen, AtOnce
from cudasync.data.cursors import Cursor, Numbered
from cudasync.data.failures import DataError, Failed, Origin, is_failed
from cudasync.data.processes.worker_pool import Crew
from cudasync.data.tuning import MOST_PER_CORE, Climber, cores
from cudasync.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.data.meters import Meter
    from cudasync.engine import Op

# The target time of a chunk. The cost of an op, or of sending a chunk to a process and back, is
# small beside it.
THREADS_S, PROCESSES_S = (1e-3, 10e-3), (4e-3, 40e-3)
MOST_SAMPLES = 256


class Mapped(Cursor):
    """`fn` of each sample of the source, computed ahead by `workers` threads.

    With `sent`, the pickled `fn`, each thread hands its chunks to a process. With `chose`, the
    number of workers changes while that pays, beginning with `workers`, and `chose` receives it.
    """

    def __init__(
        self,
        source: Cursor,
        fn: Callable[[Any], Any],
        meter: Meter,
        *,
        workers: int,
        ordered: bool,
        on_error: str,
        sent: bytes | None = None,
        chose: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(source)
        self._source, self.meter = source, meter
        self._ordered, self._skips = ordered, on_error == "skip"
        most = workers if chose is None else max(workers, MOST_PER_CORE * cores())
        self._engine: Any = Engine("async", workers=most)
        # The workers fetch the samples, too.
        self._numbered: Any = None
        if isinstance(source, Numbered) and source.on_error == "raise":
            self._numbered = source
        self._crew = None
        self._least_s, self._most_s = THREADS_S
        if sent is None:
            self._done: Callable[..., Outcome] = partial(done, fn)
        else:
            self._least_s, self._most_s = PROCESSES_S
            view = None if self._numbered is None else self._numbered.view
            self._crew = Crew(meter.stage, most, sent, view)
            self._done = self._crew.done
        # Two chunks a worker: one in work, one ready to begin.
        meter.capacity = 2 * workers
        self._pushing = AtOnce(self._engine, meter, workers)
        if chose is not None:
            self._pushing = AsChosen(self._engine, meter, Climber(most, workers), chose)
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
                # Before these are used: the workers go on meanwhile.
                self._fill()
                continue
            while given and len(found) < count:
                found.append(given.popleft())
            if is_failed(found):
                self._is_over = self._is_stopped = True
                self._under_way.clear()
        return found

    def advance(self, count: int) -> int:
        if self._skips or self._under_way or self._given:
            return super().advance(count)
        gone = self._source.advance(count)
        self._seen += gone
        return gone

    def origin(self, index: int) -> Origin:
        return self._source.origin(index) if self._ordered and not self._skips else Origin()

    def _fill(self) -> None:
        while not self._is_over and len(self._under_way) < self.meter.capacity:
            first = self._seen
            items: Sequence[Any]
            if self._numbered is not None:
                items = self._numbered.numbers(self._chunk)
            else:
                items = self._source.take(self._chunk)
            self._is_over = len(items) < self._chunk or is_failed(list(items[-1:]))
            self._seen += len(items)
            if items:
                self._under_way.append(self._push(items, first))

    def _push(self, items: Sequence[Any], first: int) -> Op:
        def run() -> tuple[list[Any], float]:
            return self._run(items, first)

        return self._pushing.push(run)

    def _run(self, items: Sequence[Any], first: int) -> tuple[list[Any], float]:
        last = [items[-1]] if items[-1].__class__ is Failed else []
        if last:
            items = items[:-1]
        view = self._numbered.view if self._numbered is not None else None
        was_lost = False
        try:
            outcome = self._done(
                items, first, view, skips=self._skips, is_stopped=lambda: self._is_stopped
            )
        except Exception as error:
            # The process died, over one of these items.
            outcome, was_lost = Outcome(error=error), True
        found = outcome.found
        self.meter.worked(len(found), outcome.seconds, outcome.skipped, outcome.cpu_s)
        if outcome.error is not None:
            stage = self.meter.stage if outcome.was_fetched else self._numbered.meter.stage
            at = outcome.failed_at
            if was_lost and items[1:]:
                last = [Failed(DataError(stage, first, outcome.error))]
            else:
                item = items[at] if view is None else None
                last = [self._source.failed(stage, first + at, outcome.error, item)]
        return [*found, *last] if last else found, outcome.seconds

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
        self._pushing.taken()
        found, seconds = op.result()
        if seconds < self._least_s:
            self._chunk = min(MOST_SAMPLES, 2 * self._chunk)
        elif seconds > self._most_s:
            self._chunk = max(1, self._chunk // 2)
        items: list[Any] = found
        return items

    def stop(self) -> None:
        self._is_over = self._is_stopped = True
        super().stop()

    def close(self) -> None:
        self.stop()
        self._under_way.clear()
        # The crew first: it kills a process that does not end, and then the op that waits for it
        # ends.
        if self._crew is not None:
            self._crew.close()
        self._engine.close()
        super().close()
