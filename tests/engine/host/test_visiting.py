"""Workers that run ops of another pool: which they may, how many at once, and what they leave.

Nobody waits for an op where it matters who runs it, and the watchdog is suspended: it would mend
what is lost.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from helpers.concurrency.thread_crew import (
    PATIENCE_S,
    comes_true,
    engine_of,
    hasty,
    held_by,
    without_watchdog,
)

import cudasync as cs
from cudasync.engine import current
from cudasync.engine.host import drain_loop, visiting
from cudasync.engine.host.permits import Permits
from cudasync.engine.host.slots import Slots

ROUNDS = 40
# Where it is to fail.
IMPATIENCE_S = 0.3


@pytest.fixture(autouse=True)
def _suspended_watchdog():
    with without_watchdog():
        yield


def visits(engine: cs.Engine) -> int:
    """How many ops were run by workers of other pools."""
    return sum(pool.visits.taken for pool in engine._pools.values())


@contextmanager
def two_pools(*, io: int = 2) -> Iterator[cs.Engine]:
    """An engine all of whose workers have begun."""
    with engine_of(workers=2, pools={"io": io}) as engine:
        for pool, size in (("compute", 2), ("io", io)):
            together = threading.Barrier(size + 1)
            for _ in range(size):
                engine.push(partial(together.wait, PATIENCE_S), pool=pool)
            together.wait(PATIENCE_S)
        engine.waitall(PATIENCE_S)
        forget_long_ops(engine)
        yield engine


def forget_long_ops(engine: cs.Engine) -> None:
    """Workers visit no pool whose ops were long, as those are that waited for the test."""
    for pool in engine._pools.values():
        pool.spread = 0


def run_chain(engine: cs.Engine, length: int, patience_s: float = PATIENCE_S) -> None:
    """Ops of two pools in turn, each behind the one before: they run in that order."""
    order: list[int] = []
    x, gate, ended = cs.Var("x"), threading.Event(), threading.Event()
    engine.push(held_by(gate), writes=[x])
    for index in range(length):
        pool = ("compute", "io")[index % 2]
        engine.push(partial(order.append, index), reads=[x], writes=[x], pool=pool)
    engine.push(ended.set, reads=[x])
    gate.set()
    assert ended.wait(patience_s), f"it ends after {len(order)} of {length}"
    assert order == list(range(length))


def test_a_chain_over_two_pools_is_run_by_one_thread_at_a_stretch():
    with two_pools() as engine:
        before = engine.statistics().host_ops
        chains: list[None] = []
        assert comes_true(lambda: chains.append(run_chain(engine, 100)) or visits(engine) > 300)
        # Each op counts once, wherever it ran: those of a chain, its gate and its end.
        engine.waitall(PATIENCE_S)
        assert engine.statistics().host_ops == before + 102 * len(chains)


def test_workers_that_may_not_visit_are_seen(monkeypatch):
    """The planted bug of the test above."""
    monkeypatch.setattr(visiting, "are_open", lambda home, host: False)
    with two_pools() as engine:
        for _ in range(4):
            run_chain(engine, 100)
        assert visits(engine) == 0


@pytest.mark.parametrize("options", [{"trace": True}, {"max_in_flight": 500}])
def test_an_engine_that_plans_all_has_no_visits(options):
    with engine_of(workers=2, pools={"io": 2}, **options) as engine:
        for _ in range(3):
            run_chain(engine, 60)
        assert visits(engine) == 0


def test_the_only_thread_of_a_pool_runs_all_its_ops_and_no_others():
    threads: dict[str, set[int]] = {"compute": set(), "io": set()}
    with two_pools(io=1) as engine:
        x = cs.Var("x")
        for index in range(200):
            pool = ("compute", "io")[index % 2]
            note = partial(lambda pool: threads[pool].add(threading.get_ident()), pool)
            engine.push(note, reads=[x], writes=[x], pool=pool)
        engine.waitall(PATIENCE_S)
    assert len(threads["io"]) == 1
    assert not threads["io"] & threads["compute"]


def visit(engine: cs.Engine, during: Callable[[], None] = lambda: None) -> bool:
    """An op of compute tries to visit "io", and comes back: True if it may."""

    def go() -> bool:
        worker = current.worker()
        assert worker is not None
        if worker.host is not None or not visiting.go(worker, engine._pools["io"]):
            return False
        try:
            during()
        finally:
            visiting.come_back(worker)
        return True

    return engine.push(go).result(PATIENCE_S)


@contextmanager
def full(engine: cs.Engine, pool: str) -> Iterator[None]:
    """As many ops of the pool run as may."""
    gate, together = threading.Event(), threading.Barrier(3)
    ops = [
        engine.push(lambda: (together.wait(PATIENCE_S), gate.wait(PATIENCE_S)), pool=pool)
        for _ in range(2)
    ]
    together.wait(PATIENCE_S)
    try:
        yield
    finally:
        gate.set()
        for op in ops:
            op.wait(PATIENCE_S)


def test_a_pool_that_is_full_has_no_visitors():
    with two_pools() as engine:
        with full(engine, "io"):
            assert not any(visit(engine) for _ in range(ROUNDS))
        assert comes_true(lambda: visit(engine))


def test_a_visitor_without_a_permit_is_found(monkeypatch):
    """The planted bug of the test above."""
    monkeypatch.setattr(Permits, "take", lambda permits, worker: not permits.take_beyond(worker))
    with two_pools() as engine, full(engine, "io"):
        assert comes_true(lambda: visit(engine))


@pytest.mark.parametrize("seed", range(3))
def test_no_more_ops_of_a_pool_run_at_once_than_it_has_workers(seed):
    chooser = random.Random(seed)
    running: dict[str, set[int]] = {"compute": set(), "io": set()}
    most: dict[str, list[int]] = {"compute": [0], "io": [0]}
    variables = [cs.Var(f"v{index}") for index in range(6)]

    def count(pool: str, index: int) -> None:
        running[pool].add(index)
        most[pool].append(len(running[pool]))
        running[pool].discard(index)

    with two_pools() as engine, hasty():
        for index in range(600):
            pool = chooser.choice(("compute", "io"))
            reads, writes = chooser.sample(variables, 2), chooser.sample(variables, 1)
            engine.push(partial(count, pool, index), reads=reads, writes=writes, pool=pool)
        engine.waitall(PATIENCE_S)
    assert max(most["compute"]) <= 2
    assert max(most["io"]) <= 2


def meet_during_visit(engine: cs.Engine, patience_s: float = PATIENCE_S) -> bool:
    """Two ops of compute meet each other while a worker of compute visits "io". True if it did; an
    assertion if the two do not meet."""
    met, together = threading.Semaphore(0), threading.Barrier(2)
    found: list[bool] = []

    def meet() -> None:
        together.wait(PATIENCE_S)
        met.release()

    def during() -> None:
        for _ in range(2):
            engine.push(meet)
        found.extend(met.acquire(timeout=patience_s) for _ in range(2))

    if not visit(engine, during):
        return False
    engine.waitall(PATIENCE_S)
    assert all(found), "compute lacks a worker"
    return True


def test_a_long_visit_takes_no_worker_from_compute():
    with two_pools() as engine:
        for _ in range(ROUNDS // 4):
            assert comes_true(lambda: meet_during_visit(engine))
        # The workers that came in the place of visitors have ended.
        assert comes_true(lambda: len(engine._compute.workers) <= 2)


def test_a_visitor_that_lends_no_slot_is_found(monkeypatch):
    """The planted bug of the test above."""
    monkeypatch.setattr(Slots, "lend", lambda slots: None)
    monkeypatch.setattr(Slots, "take_back", lambda slots: True)
    with two_pools() as engine, pytest.raises(AssertionError, match="lacks a worker"):
        comes_true(lambda: meet_during_visit(engine, IMPATIENCE_S))


def test_a_visitor_that_waits_in_its_op_has_given_back_its_permit():
    """In each pool, forty ops wait for one that is pushed after them, in the other pool."""
    with two_pools() as engine:
        inner: list[cs.Op] = []
        x, gate = cs.Var("x"), threading.Event()

        def outer(index: int) -> int:
            return inner[index].result(PATIENCE_S)

        engine.push(held_by(gate), writes=[x])
        pools = ("io", "compute")
        ops = [
            engine.push(partial(outer, index), reads=[x], pool=pools[index % 2])
            for index in range(40)
        ]
        inner += [engine.push(lambda i=index: i, pool=pools[1 - index % 2]) for index in range(40)]
        gate.set()
        assert [op.result(PATIENCE_S) for op in ops] == list(range(40))
        engine.waitall(PATIENCE_S)
        assert comes_true(lambda: not any(p.permits.holders for p in engine._pools.values()))


def test_a_visited_op_that_fails_poisons_its_data_and_no_other():
    rounds = 0
    with two_pools() as engine:
        # Which rounds have visits is up to the threads.
        while rounds < ROUNDS or (visits(engine) == 0 and rounds < 100 * ROUNDS):
            rounds += 1
            x, y = cs.Var("x"), cs.Var("y")
            engine.push(int, writes=[x, y])
            failing = engine.push(lambda: 1 // 0, reads=[x], writes=[x], pool="io")
            poisoned = engine.push(int, reads=[x])
            sound = engine.push(int, reads=[y], pool="io")
            assert isinstance(poisoned.exception(PATIENCE_S).cause, ZeroDivisionError)
            assert failing.exception(PATIENCE_S) is not None
            assert sound.exception(PATIENCE_S) is None
            engine.clear_errors()
        assert visits(engine) > 0


def test_a_callback_does_not_keep_an_op_of_another_pool_waiting():
    """The worker that ends an op calls its callbacks, which take as long as they like."""
    with two_pools() as engine:
        for _ in range(ROUNDS // 4):
            x, gate, ran = cs.Var("x"), threading.Event(), threading.Event()
            first = engine.push(held_by(gate), writes=[x])
            engine.push(ran.set, reads=[x], pool="io")
            engine.statistics()
            seen: list[bool] = []
            first.add_done_callback(lambda seen=seen, ran=ran: seen.append(ran.wait(PATIENCE_S)))
            gate.set()
            assert ran.wait(PATIENCE_S)
            assert comes_true(lambda seen=seen: bool(seen))
            assert seen == [True]


def test_a_planner_of_another_pool_is_left_to_plan_while_it_makes_progress():
    """Only a thread that drains the log and may visit the pool; any other planner is superseded."""
    with two_pools() as engine:
        mine = threading.get_ident()
        pools = [engine._pools["compute"], engine._pools["io"]]

        def ask() -> list[bool]:
            forget_long_ops(engine)
            worker = current.worker()
            assert worker is not None
            return [
                drain_loop.is_planned_by(threading.get_ident(), pool) == (pool is not worker.pool)
                for pool in pools
            ]

        for pool in ("compute", "io"):
            assert engine.push(ask, pool=pool).result(PATIENCE_S) == [True, True]
        assert not any(drain_loop.is_planned_by(mine, pool) for pool in pools)
