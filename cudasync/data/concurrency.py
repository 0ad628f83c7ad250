"""Floor 4. How many chunks of a `map` run at once: on all workers, or on a chosen number."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cudasync.data.tuning import WINDOW_CHUNKS, WINDOW_S, Climber
from cudasync.engine import Var

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.data.meters import Meter
    from cudasync.engine import Op


class AtOnce:
    """Every worker of the engine takes chunks."""

    def __init__(self, engine: Any, meter: Meter, workers: int) -> None:
        self._engine, self._meter = engine, meter
        meter.workers = workers

    def push(self, run: Callable[[], Any]) -> Op:
        op: Op = self._engine.push(run, name=self._meter.stage)
        return op

    def taken(self) -> None:
        """Note that a chunk was taken from the stage."""


class AsChosen(AtOnce):
    """Runs as many chunks at once as a climber says: each writes the variable of a worker.

    The engine has threads for the largest number, which begin when they are needed.
    """

    def __init__(
        self, engine: Any, meter: Meter, climber: Climber, chose: Callable[[int], None]
    ) -> None:
        super().__init__(engine, meter, climber.workers)
        self._climber, self._chose = climber, chose
        self._workers: list[tuple[Var, Op | None]] = []
        self._turn = 0
        self._resize()
        self._chunks = 0
        self._since = self._counts()

    def push(self, run: Callable[[], Any]) -> Op:
        at = self._free()
        variable, _ = self._workers[at]
        op: Op = self._engine.push(run, writes=(variable,), name=self._meter.stage)
        self._workers[at] = variable, op
        return op

    def taken(self) -> None:
        self._chunks += 1
        if self._chunks < WINDOW_CHUNKS:
            return
        now = self._counts()
        at, items, waits, looks = (new - old for new, old in zip(now, self._since, strict=True))
        if at >= WINDOW_S:
            self._chunks, self._since = 0, now
            before = self._climber.workers
            if self._climber.told(int(items), at, int(waits), int(looks)) != before:
                self._resize()
                self._chose(self._climber.workers)

    def _counts(self) -> tuple[float, ...]:
        meter = self._meter
        return time.perf_counter(), meter.items, meter.waits, meter.looks

    def _free(self) -> int:
        """An idle worker, else the next in turn."""
        for at, (_, last) in enumerate(self._workers):
            if last is None or last.finished:
                return at
        self._turn = (self._turn + 1) % len(self._workers)
        return self._turn

    def _resize(self) -> None:
        count = self._climber.workers
        del self._workers[count:]
        while len(self._workers) < count:
            self._workers.append((Var(f"worker {len(self._workers)}"), None))
        self._turn = 0
        self._meter.workers = count
        self._meter.capacity = 2 * count
