"""Threads that may be suspended in the engine while no thread waits for any op.

The pushed ops have effects that are visible without the engine, and the other threads look only at
those. A wait would plan, issue, and do the work of the suspended thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
from helpers.concurrency.freeze_scenarios import OnEngine, PushesHostOp, launched_by_its_waiter

import cudasync as cs
from cudasync.testing import Latch


class Unheard(OnEngine):
    """An engine with ops that report themselves that they ran."""

    workers = 1
    patience_s = PATIENCE_S
    # A worker that naps while another thread is busy does not come to rest.
    most_points = 2000

    def __init__(self) -> None:
        super().__init__()
        self.effects = threading.Semaphore(0)

    def effect(self, name: str, **accesses: object) -> None:
        """Push an op whose effect is counted."""

        def run() -> None:
            self.ran.append(name)
            self.effects.release()

        self.ops[name] = self.engine.push(run, name=name, **accesses)

    def seen(self, count: int) -> Iterator[str]:
        """See `count` effects, without any wait for an op."""
        for index in range(count):
            yield f"see effect {index + 1} of {count}, waiting for no op"
            assert self.effects.acquire(timeout=self.patience_s), "it never runs"

    def alone(self, count: int = 4) -> Iterator[str]:
        """Push ops without dependencies. The suspended thread may hold one of them."""
        yield "push what has nothing to do with each other"
        for index in range(count):
            self.effect(f"alone {index}", writes=[cs.Var()])
        yield from self.seen(count - 1)

    def behind(self) -> Iterator[str]:
        yield "push two that come after each other"
        self.effect("before", writes=[self.z])
        self.effect("behind", reads=[self.z])
        yield from self.seen(2)


class FallsAsleep(Unheard):
    """The only worker has no work and falls asleep; perhaps it is woken."""

    sleeps = True

    def suspended(self, freezer: Freezer) -> None:
        self.suspended_worker(freezer)

    def others(self, freezer: Freezer) -> Iterator[str]:
        if freezer.is_frozen and not self.ops["one"].finished:
            yield "an op that has not ended keeps its place in the pool"
        elif freezer.is_frozen:
            yield from self.behind()
        elif self.workers > 1:
            # The worker is woken for one of these ops and may hold it. That op keeps its place.
            yield from self.alone()


class FallsAsleepBesideAnother(FallsAsleep):
    """The same beside a worker that sleeps."""

    workers = 2


class FallsAsleepTraced(FallsAsleepBesideAnother):
    """The same with a trace: all ops are planned before any of them runs."""

    options: ClassVar[dict[str, Any]] = {"trace": True}


class WatchesForAnother(Unheard):
    """One worker is in a long op. Of two others one watches the log; either may be suspended."""

    workers = 3
    sleeps = True

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def suspended(self, freezer: Freezer) -> None:
        together = threading.Barrier(4)

        def meet() -> None:
            self.ran.append("one")
            freezer.install()
            together.wait(PATIENCE_S)

        def long() -> None:
            together.wait(PATIENCE_S)
            self.gate.wait(PATIENCE_S)

        self.engine.push(long)
        for name in ("one", "two"):
            self.ops[name] = self.engine.push(meet, name=name)
        together.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.alone()

    def after(self) -> None:
        self.gate.set()
        self.ran[self.ran.index("one")] = "two"
        super().after()


class Pushes(Unheard, PushesHostOp):
    """The suspended thread pushes, and so starts the only worker."""

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.behind()


class PushesToSleeper(Pushes):
    """The suspended thread pushes, and so wakes the only worker."""

    def __init__(self) -> None:
        super().__init__()
        self.engine.push(lambda: None).wait(PATIENCE_S)


class LaunchesAndWaits(Unheard):
    """The suspended thread launches a short segment of a graph, and runs it as its waiter. Before
    its claim, a worker runs the segment."""

    workers = 2
    sleeps = True

    def __init__(self) -> None:
        super().__init__()
        self.segments = threading.Semaphore(0)
        self.launch = launched_by_its_waiter(self.engine, self.one, self.y)
        while self.segments.acquire(blocking=False):
            pass
        self.ran.clear()

    def one(self) -> None:
        self.ran.append("one")
        self.segments.release()

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.ops["one"] = self.launch()
            self.ops["one"].wait()

    def others(self, freezer: Freezer) -> Iterator[str]:
        if "one" in self.ops and not self.ops["one"]._claims:
            yield "see the segment, which nobody has begun"
            assert self.segments.acquire(timeout=self.patience_s), "it never runs"
        yield from self.behind()


class Finishes(Unheard):
    """A worker finishes an op with dependent ops, which as a rule another worker runs."""

    workers = 2
    # The worker sleeps when it has no work left.
    sleeps = True

    def suspended(self, freezer: Freezer) -> None:
        went = threading.Event()

        def one() -> None:
            self.ran.append("one")
            freezer.install()
            went.set()

        gate = threading.Event()
        self.ops["one"] = self.engine.push(
            lambda: (gate.wait(PATIENCE_S), one()), name="one", writes=[self.y]
        )
        for index in range(3):
            self.effect(f"dependent {index}", reads=[self.y])
        # Waiting ops get their gates, as when another worker goes through the log.
        self.engine.statistics()
        gate.set()
        assert went.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        if not freezer.is_frozen:
            yield "find it asleep"
        elif self.ops["one"].finished:
            # The worker may have taken one of these ops.
            yield from self.seen(2)
        else:
            yield from self.behind()


class VisitsAnotherPool(Finishes):
    """A worker finishes an op, runs one of another pool that comes after it, and comes back."""

    io = 2

    def suspended(self, freezer: Freezer) -> None:
        # A worker visits only if another one of its pool may watch.
        together = threading.Barrier(2)
        for _ in range(2):
            self.engine.push(lambda: together.wait(PATIENCE_S))
        went, gate = threading.Event(), threading.Event()

        def one() -> None:
            gate.wait(PATIENCE_S)
            self.ran.append("one")
            freezer.install()
            went.set()

        self.ops["one"] = self.engine.push(one, name="one", writes=[self.y])
        self.effect("visited", reads=[self.y], writes=[self.x], pool="io")
        self.effect("back", reads=[self.x])
        self.engine.statistics()
        gate.set()
        assert went.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        if not freezer.is_frozen:
            yield "find it asleep"
        elif self.ops["one"].finished:
            # It may have the visited op in its hands; that one keeps a place of the other pool.
            yield "push to both pools what has nothing to do with each other"
            for index, pool in enumerate(("io", "compute", "io", "compute")):
                self.effect(f"alone {index}", writes=[cs.Var()], pool=pool)
            yield from self.seen(3)
        else:
            yield from self.behind()


class EndsDeviceOp(Unheard):
    """A stream's watcher ends a device op, and a host op comes after the device op."""

    sleeps = True

    def __init__(self) -> None:
        super().__init__()
        self.latches = [Latch(cs.Device(0)) for _ in range(2)]
        self.are_held = threading.Semaphore(0)

    def suspended(self, freezer: Freezer) -> None:
        went = threading.Event()

        def install() -> None:
            freezer.install()
            went.set()

        for name, latch in zip(("first", "one"), self.latches, strict=True):
            self.ran.append(name)
            self.ops[name] = self.engine.push(
                self.holding(latch), device=0, name=name, writes=[self.x]
            )
        self.effect("behind", reads=[self.x])
        self.ops["first"].add_done_callback(install)
        self.latches[0].release()
        assert went.wait(PATIENCE_S)

    def holding(self, latch: Latch) -> Callable[[cs.Stream], None]:
        def hold(stream: cs.Stream) -> None:
            latch.hold(stream)
            self.are_held.release()

        return hold

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield "let the device go on"
        # A latch that is released before it holds the device would hold it for ever.
        for _ in self.latches:
            assert self.are_held.acquire(timeout=PATIENCE_S)
        self.latches[1].release()
        yield from self.seen(1)
