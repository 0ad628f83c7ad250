"""Threads that may be suspended in the engine, and the work that the others must get done.

Every scenario has its own engine. One thread is suspended somewhere in the engine: while it pushes,
finishes an op, or waits. The other threads push on the same variables and on others, and wait. Only
ops that come after an op run by the suspended thread may hang.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
from helpers.concurrency.freeze_test import Scenario, call_in_thread

import cudasync as cs
from cudasync.engine.hazards.variable import resolve_one
from cudasync.engine.host import inline_execution
from cudasync.errors import ClosedError


class OnEngine(Scenario):
    """An engine with two workers, and an "io" worker that may be suspended without being missed."""

    # Further options of the engine.
    options: ClassVar[dict[str, Any]] = {}
    workers = 2
    io = 1

    def __init__(self) -> None:
        pools = {"io": self.io}
        self.engine = cs.Engine(workers=self.workers, pools=pools, streams=2, **self.options)
        self.x: Any
        self.y: Any
        self.z: Any
        self.x, self.y, self.z = cs.Var("x"), cs.Var("y"), cs.Var("z")
        # The names of the ops, in the order in which they ran.
        self.ran: list[str] = []
        self.ops: dict[str, cs.Op] = {}

    def push(self, name: str, **accesses: object) -> cs.Op:
        """Push a host op that records that it ran."""
        self.ops[name] = op = self.engine.push(lambda: self.ran.append(name), name=name, **accesses)
        return op

    def suspended_worker(self, freezer: Freezer) -> None:
        """Push an op; its worker may be suspended from then on."""
        is_known, went = threading.Event(), threading.Event()

        def one() -> None:
            # The other threads look at this op.
            assert is_known.wait(PATIENCE_S)
            self.ran.append("one")
            freezer.install()
            went.set()

        self.ops["one"] = self.engine.push(one, name="one")
        is_known.set()
        assert went.wait(PATIENCE_S)

    def finish(self, *names: str) -> Iterator[str]:
        """Wait for these ops, and announce each wait."""
        for name in names:
            yield f"wait for {name!r}"
            self.ops[name].wait(PATIENCE_S)

    def finish_all_but_one(self, names: list[str]) -> None:
        """Wait for all of these ops at once, until at most one is left."""
        ended = threading.Semaphore(0)
        for name in names:
            call_in_thread(self.ops[name].wait, ended.release)
        for _ in names[1:]:
            assert ended.acquire(timeout=PATIENCE_S), f"of {self.ops}"

    def apart(self) -> Iterator[str]:
        """Push and wait for ops that depend on no other op."""
        yield "push on a variable that nobody else touches"
        self.push("apart", writes=[self.z])
        self.push("behind it", reads=[self.z])
        yield from self.finish("behind it", "apart")

    def crossed(self) -> Iterator[str]:
        """Push ops on the suspended thread's variables, with reads and writes exchanged."""
        yield "push on the variables of the suspended one"
        self.push("first", reads=[self.y], writes=[self.x])
        self.push("second", reads=[self.x], writes=[self.y])
        self.push("third", writes=[self.x, self.y])
        yield from self.finish("third", "second", "first")

    def after(self) -> None:
        self.engine.waitall(PATIENCE_S)
        self.engine.close()
        assert sorted(self.ran) == sorted(self.ops), "each op runs once"
        mine = [name for name in self.ran if name in ("one", "first", "second", "third")]
        assert mine == sorted(mine, key=lambda name: self.ops[name].number), "in push order"


class PushesHostOp(OnEngine):
    """The suspended thread pushes a host op on variables that other threads push on, too."""

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.push("one", reads=[self.x], writes=[self.y])

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield from self.crossed()


class PushesOnArrays(PushesHostOp):
    """The same, with memory as variables."""

    def __init__(self) -> None:
        super().__init__()
        data = np.zeros(24)
        self.x, self.y, self.z = data[:8], data[4:16], data[16:]


class PushesShortOp(PushesOnArrays):
    """The suspended thread pushes an op and runs it itself. Later ops on its variables wait for
    that op."""

    def suspended(self, freezer: Freezer) -> None:
        regions = [resolve_one(each, "reads") for each in (self.x, self.y)]
        accesses = (regions[0],), (), (regions[1],)
        with freezer:
            self.ops["one"] = inline_execution.push(
                self.engine, lambda: self.ran.append("one"), accesses, "one", sys._getframe()
            )

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()


class PushesBatch(PushesHostOp):
    """The suspended thread pushes several functions as one op."""

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.ops["one"] = self.engine.push_many(
                [(int, [self.x], ()), (lambda: self.ran.append("one"), [self.x], [self.y])],
                name="one",
            )


class PushesBatchOnArrays(PushesBatch, PushesOnArrays):
    """The same, with memory as variables."""


class PushesTraced(PushesHostOp):
    """The same, with every option that makes a push do more."""

    options: ClassVar[dict[str, Any]] = {"trace": True, "max_in_flight": 50}


class PushesInsideOp(OnEngine):
    """The suspended thread is an op that pushes, and waits for the ops that it pushed."""

    sleeps = True

    def suspended(self, freezer: Freezer) -> None:
        went = threading.Event()

        def outer() -> None:
            self.ran.append("outer")
            went.set()
            with freezer:
                self.push("one", reads=[self.x], writes=[self.y]).wait(PATIENCE_S)

        self.ops["outer"] = self.engine.push(outer, name="outer", pool="io")
        assert went.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield from self.crossed()


class PushesBehind(OnEngine):
    """The suspended thread pushes a host op behind an unfinished op."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.engine.push(lambda: self.gate.wait(PATIENCE_S), name="gate", writes=[self.x])

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.push("one", reads=[self.x], writes=[self.y])

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield "open the gate"
        self.gate.set()
        yield from self.crossed()


class FinishesHostOp(OnEngine):
    """The suspended thread is a worker that finishes an op, and goes on to the next one."""

    def suspended(self, freezer: Freezer) -> None:
        gate, went = threading.Event(), threading.Event()

        def one() -> None:
            assert gate.wait(PATIENCE_S)
            # A dependent op, so that finishing the op does more.
            self.push("dependent", reads=[self.y])
            self.ran.append("one")
            freezer.install()
            went.set()

        self.ops["one"] = self.engine.push(one, name="one", writes=[self.y], pool="io")
        self.ops["stop"] = self.engine.push(
            lambda: (self.ran.append("stop"), freezer.stop()), name="stop", pool="io"
        )
        gate.set()
        assert went.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        if self.ops["one"].done():
            yield "push behind an op that says that it is done"
            self.push("late", writes=[self.y])
            yield from self.finish("dependent", "late")


class FinishesTracedOp(FinishesHostOp):
    """The same with a trace."""

    options: ClassVar[dict[str, Any]] = {"trace": True}


class RestsAndWakes(OnEngine):
    """The suspended thread is one of two workers. It has no work, sleeps, and is woken."""

    sleeps = True

    def suspended(self, freezer: Freezer) -> None:
        self.suspended_worker(freezer)

    def others(self, freezer: Freezer) -> Iterator[str]:
        if freezer.is_frozen:
            yield from self.apart()
            yield from self.crossed()
            return
        # The sleeper is woken for one of these ops, and may be suspended while it holds the op.
        yield "push what has nothing to do with each other"
        names = [f"alone {i}" for i in range(4)]
        for name in names:
            self.push(name, writes=[cs.Var(name)])
        yield "wait for all of these but one"
        self.finish_all_but_one(names)


class RestsAndWakesTraced(RestsAndWakes):
    """The same with a trace: then all ops are planned before any of them runs."""

    options: ClassVar[dict[str, Any]] = {"trace": True}


class Waits(OnEngine):
    """The suspended thread waits for an op that ends meanwhile."""

    sleeps = True

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.held = self.engine.push(
            lambda: self.gate.wait(PATIENCE_S), name="held", writes=[self.x], pool="io"
        )

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.wait()

    def wait(self) -> None:
        self.held.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield "open the gate"
        self.gate.set()
        freezer.settle()
        yield "wait for the same op"
        self.held.wait(PATIENCE_S)
        yield from self.crossed()


class RunsWhatItWaitsFor(OnEngine):
    """The suspended thread launches a short segment of a graph, waits for it, and so runs it
    itself. Later ops on its variables wait for that op."""

    sleeps = True

    def __init__(self) -> None:
        super().__init__()
        self.launch = launched_by_its_waiter(self.engine, lambda: self.ran.append("one"), self.y)
        self.ran.clear()

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.ops["one"] = self.launch()
            self.ops["one"].wait()

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()


def launched_by_its_waiter(
    engine: cs.Engine, fn: Callable[[], object], written: cs.Var
) -> Callable[[], cs.Op]:
    """Launches a graph with this function, after a launch of it that its waiter has run."""
    threads: list[int] = []
    with cs.use(engine), cs.graph() as g:
        cs.engine().push(lambda: (threads.append(threading.get_ident()), fn()), writes=[written])
    executable = g.instantiate()

    def launch() -> cs.Op:
        with cs.use(engine):
            return executable.launch()

    while threading.get_ident() not in threads:
        launch().wait()
    return launch


class WaitsForVariable(Waits):
    """The suspended thread waits for a variable."""

    def wait(self) -> None:
        self.x.wait(PATIENCE_S)


class WaitsForAll(Waits):
    """The suspended thread waits for all ops."""

    def wait(self) -> None:
        self.engine.waitall(PATIENCE_S)


class Asks(Waits):
    """The suspended thread asks whether an op is done, and registers a callback."""

    sleeps = False

    def wait(self) -> None:
        self.held.done()
        self.held.add_done_callback(lambda: None)


class ClearsErrors(OnEngine):
    """The suspended thread waits for all ops, and clears their errors."""

    def __init__(self) -> None:
        super().__init__()
        self.engine.push(lambda: 1 // 0, name="bad", writes=[self.x]).exception(PATIENCE_S)

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.engine.clear_errors()

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield "overwrite what is poisoned"
        self.push("heal", writes=[self.x])
        yield from self.finish("heal")


class Closes(OnEngine):
    """The suspended thread closes the engine while others push."""

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.engine.close()

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield "push until it is closed"
        name = ""
        for name in ("late", "later", "latest"):
            try:
                self.push(name, writes=[self.x])
            except ClosedError:
                break
        yield from self.finish(*self.ops)
        yield "use another engine"
        other = cs.Engine(workers=1)
        other.push(lambda: None, writes=[self.x, self.z]).wait(PATIENCE_S)
        other.close()

    def after(self) -> None:
        assert sorted(self.ran) == sorted(self.ops)
        assert self.engine.is_closed
