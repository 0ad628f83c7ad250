"""Launches with host ops before, beside and among them, for bench_cliffs.

A software GPU would take the measured processor. So everything timed or counted leaves out the
enqueuing calls, and only the checks make them.
"""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.harness.bytecodes import bytecodes
from bench.harness.measurement import Contender
from bench.launches import bursts
from bench.launches.rig import without_driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from bench.harness.measurement import Session

AFTERWARDS = "host ops, then launches"
IN_TURN = "host ops and launches in turn"

ALONE = "a launch alone"
AFTER = "a launch after a short host op"
DURING = "a launch during a long host op"
BEHIND = "a launch after a host op that no worker is free for"

# A worker finds no more work and sleeps within this time.
PAUSE_S = 0.0005
COUNTS = 9


class Neighbours:
    """Prepared launches on one array, and the host functions beside them."""

    def __init__(
        self, closing: ExitStack, engine: cs.Engine, kernel: cs.Kernel, launches: int
    ) -> None:
        self._engine = engine
        self._first = np.arange(bursts.BLOCK, dtype=np.uint32)
        self._array = cs.array(self._first)
        self._step = kernel.prepare(grid=1, block=bursts.BLOCK, args=(self._array, self._array))
        self._launches = launches
        self._thread = ThreadPoolExecutor(1)
        closing.callback(self._thread.shutdown)
        self._calls = 0
        # Make everything that first use makes: so many events may be in use at once.
        for _ in range(max(launches, COUNTS)):
            self._step.push()
        engine.waitall()

    def together(self) -> list[Contender]:
        """As many host ops as launches, in either order, until all are done."""
        push, launch, waitall = self._engine.push, self._step.push, self._engine.waitall
        turns = range(self._launches)

        def afterwards() -> None:
            for _ in turns:
                push(self._host)
            waitall()
            for _ in turns:
                launch()
            waitall()

        def in_turn() -> None:
            for _ in turns:
                push(self._host)
                launch()
            waitall()

        def contend(name: str, run: Callable[[], None]) -> Contender:
            def bench(loops: int) -> float:
                with without_driver():
                    start = time.perf_counter()
                    for _ in range(loops):
                        run()
                    return time.perf_counter() - start

            return Contender(name, bench, lambda: self._checksum(run))

        return [contend(AFTERWARDS, afterwards), contend(IN_TURN, in_turn)]

    def one_by_one(self) -> list[Contender]:
        """Launches with a pause before each. A sample is the median over its launches."""

        def contend(name: str, begin: Callable[[], Callable[[], object]]) -> Contender:
            def run() -> list[float]:
                return [self._timed(begin) for _ in range(self._launches)]

            def bench(loops: int) -> float:
                with without_driver():
                    taken = [each for _ in range(loops) for each in run()]
                    self._engine.waitall()
                return statistics.median(taken) * len(taken)

            return Contender(name, bench, lambda: self._checksum(run))

        return [contend(name, begin) for name, begin in self.beginnings().items()]

    def beginnings(self) -> dict[str, Callable[[], Callable[[], object]]]:
        """Activities during the push of a launch. Each function begins one and returns its end."""
        # Other threads have run in all of them, because cold caches are no cliff.
        return {
            ALONE: lambda: self._short(self._thread.submit),
            AFTER: lambda: self._short(self._engine.push),
            DURING: self._long,
            BEHIND: self._behind,
        }

    def bytecodes(self, begin: Callable[[], Callable[[], object]]) -> float:
        """The bytecodes of one launch; the median over a few."""
        found = []
        with without_driver():
            for _ in range(COUNTS):
                end = begin()
                found.append(bytecodes(self._step.push))
                end()
            self._engine.waitall()
        return statistics.median(found)

    def _timed(self, begin: Callable[[], Callable[[], object]]) -> float:
        end = begin()
        start = time.perf_counter()
        self._step.push()
        seconds = time.perf_counter() - start
        end()
        return seconds

    def _short(self, give: Callable[[Callable[[], None]], object]) -> Callable[[], object]:
        done = threading.Event()

        def host() -> None:
            self._host()
            done.set()

        give(host)
        done.wait()
        time.sleep(PAUSE_S)
        return lambda: None

    def _long(self) -> Callable[[], object]:
        gate = self._occupy(1)
        self._host()
        time.sleep(PAUSE_S)
        return gate.set

    def _behind(self) -> Callable[[], object]:
        gate = self._occupy(bursts.WORKERS)
        self._engine.push(self._host)
        time.sleep(PAUSE_S)
        return gate.set

    def _occupy(self, workers: int) -> threading.Event:
        """Keep this many workers inside ops until the event is set."""
        gate, together = threading.Event(), threading.Barrier(workers + 1)

        def host() -> None:
            together.wait()
            gate.wait()

        for _ in range(workers):
            self._engine.push(host)
        together.wait()
        return gate

    def _host(self) -> None:
        # The checked runs never call this from two threads at once, so no call is lost.
        self._calls += 1

    def _checksum(self, run: Callable[[], object]) -> int:
        """The checksum of the array and of the host function's calls after `run`."""
        cs.copy(self._array, self._first)
        self._engine.waitall()
        self._calls = 0
        run()
        self._engine.waitall()
        return bursts.checksum_of([self._array.numpy()]) ^ self._calls


def count_bytecodes(session: Session, launches: Neighbours, *, most: float) -> None:
    """Report the bytecodes of a launch, relative to a launch alone, independent of any clock."""
    found = {name: launches.bytecodes(begin) for name, begin in launches.beginnings().items()}
    for name, count in found.items():
        told = f"bench_cliffs.launch: bytecodes, {name}"
        if name == ALONE:
            session.measure(told, count, "")
        else:
            session.measure(told, count / found[ALONE], f"of one alone ({count:.0f})", most)
