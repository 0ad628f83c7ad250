"""A permit that is taken away from a thread that comes late, and a worker that ends by an error.

The watchdog takes permits away, on a machine that is so busy that a thread looks suspended. Here a
pool's list of requests does it, between a request and the look for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, comes_true, engine_of

import cudasync as cs
from cudasync.engine import current
from cudasync.engine.host import visiting
from cudasync.engine.host.permits import Permits
from cudasync.engine.host.pool import WorkerPool
from cudasync.engine.host.worker import Worker


class Robbed(list):
    """The requests of a pool: the next one that has to be looked for is taken away before."""

    def __init__(self, pool: WorkerPool) -> None:
        super().__init__(pool.permits.holders)
        self.pool = pool
        self.is_due = False
        self.is_meant: Callable[[Worker], bool] = lambda worker: True
        self.robbed: list[Worker] = []

    def __len__(self) -> int:
        # As if others were about to leave: so the request is looked for.
        is_asked = self.is_due and sys._getframe(1).f_code.co_name == "take"
        return super().__len__() + (self.pool.size if is_asked else 0)

    def copy(self) -> list[Worker]:
        is_asked = self.is_due and sys._getframe(1).f_code.co_name == "take"
        if is_asked and self.is_meant(self[-1]):
            self.is_due = False
            self.robbed.append(self[-1])
            self.pool.permits.give_back(self[-1])
        return list(self)


@pytest.fixture(autouse=True)
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The errors by which threads of the engine have ended."""
    found: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda seen: found.append(seen.exc_value))
    return found


def robbed(pool: WorkerPool) -> Robbed:
    made = Robbed(pool)
    pool.permits.holders = made
    return made


def worker_asks(engine: cs.Engine, requests: Robbed) -> None:
    """A worker wakes up for an op that became ready."""
    requests.is_due = True
    engine.push(int).wait(PATIENCE_S)


def visitor_asks(engine: cs.Engine, requests: Robbed) -> None:
    """A worker of another pool has an op that the pool could run."""

    def visit() -> bool:
        worker = current.worker()
        assert worker is not None
        if worker.host is not None:
            return False
        requests.is_due = True
        if visiting.go(worker, requests.pool):
            # Another thread's request was taken away.
            visiting.come_back(worker)
        return worker in requests.robbed

    assert comes_true(lambda: engine.push(visit, pool="io").result(PATIENCE_S))


def returning_visitor_asks(engine: cs.Engine, requests: Robbed) -> None:
    """A worker of the pool comes back from an op of another pool."""
    io = engine._pools["io"]
    is_back: list[bool] = []

    def visit() -> bool:
        worker = current.worker()
        assert worker is not None
        if worker.host is not None or not visiting.go(worker, io):
            return False
        requests.is_due = True
        is_back.append(visiting.come_back(worker))
        return worker in requests.robbed

    assert comes_true(lambda: engine.push(visit).result(PATIENCE_S))
    assert is_back[-1] is False


def waiter_asks(engine: cs.Engine, requests: Robbed) -> None:
    """A thread waits for a short op that it could run itself."""
    with cs.graph() as g:
        cs.engine().push(int, writes=[cs.Var()])
    exe = g.instantiate()
    # Not the worker that its push rings for.
    requests.is_meant = lambda worker: worker.host is requests.pool

    def is_robbed() -> bool:
        requests.is_due = True
        # In which time the launch learns that it is short.
        for _ in range(3):
            exe.launch().wait()
        return bool(requests.robbed)

    assert comes_true(is_robbed)


@pytest.mark.parametrize("ask", [worker_asks, visitor_asks, returning_visitor_asks, waiter_asks])
def test_a_permit_that_is_taken_away_meanwhile_is_a_permit_that_is_not_left(ask, deaths):
    with engine_of(workers=2, pools={"io": 2}) as engine:
        # Both workers of each pool have begun: a visitor leaves its pool to another worker.
        together = threading.Barrier(4)
        for pool in ("compute", "io") * 2:
            engine.push(partial(together.wait, PATIENCE_S), pool=pool)
        engine.waitall(PATIENCE_S)
        for pool in engine._pools.values():
            # Long ops have no visitors.
            pool.spread = 0
        requests = robbed(engine._pools["compute"])
        ask(engine, requests)
        assert comes_true(lambda: bool(requests.robbed))
        requests.is_due = False
        ops = [engine.push(lambda i=index: i) for index in range(20)]
        assert [op.result(PATIENCE_S) for op in ops] == list(range(20))
    assert deaths == []
    assert list(requests) == []


def test_a_worker_that_takes_its_request_for_granted_dies(monkeypatch, deaths):
    """The planted bug of the test above."""

    def take(permits, worker):
        permits.holders.append(worker)
        return len(permits.holders) <= permits.size or permits.holders.copy().index(worker) == 0

    monkeypatch.setattr(Permits, "take", take)
    with engine_of(workers=2) as engine:
        engine.push(int).wait(PATIENCE_S)
        worker_asks(engine, robbed(engine._compute))
        assert comes_true(lambda: bool(deaths))
    assert isinstance(deaths[0], ValueError)


@pytest.mark.parametrize("workers", [1, 2])
def test_another_worker_comes_where_one_has_ended_by_an_error(workers, monkeypatch, deaths):
    """Also in the end: a pool never runs out of workers."""
    work, left = Worker._work, ["a worker", "another", "a third"]

    def fails(worker):
        if left:
            raise MemoryError(left.pop())
        work(worker)

    monkeypatch.setattr(Worker, "_work", fails)
    with engine_of(workers=workers) as engine:
        assert engine.push(lambda: 7).result(PATIENCE_S) == 7
        together = [engine.push(int) for _ in range(20)]
        assert all(op.wait(PATIENCE_S) is None for op in together)
        assert len(deaths) == 3
        assert len(engine._compute.workers) <= workers
