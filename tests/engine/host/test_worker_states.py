"""Workers change state during a push: a push never counts on a worker that has gone.

The watchdog would repair a loss, so it is suspended in all these tests. No test waits for an op: it
looks at the op's effects.
"""

from __future__ import annotations

import threading
import time

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of, held_by, without_watchdog

from cudasync.engine import current
from cudasync.engine.host.pool import WorkerPool
from cudasync.engine.host.slots import Slots
from cudasync.engine.host.states import State, States
from cudasync.engine.log.epoch import STRETCH

ROUNDS = 60
# The patience of tests that expect a loss.
IMPATIENCE_S = 0.3


@pytest.fixture(autouse=True)
def _suspended_watchdog():
    with without_watchdog():
        yield


def push_as_one_leaves(monkeypatch: pytest.MonkeyPatch, patience_s: float = PATIENCE_S) -> bool:
    """Push while a surplus worker is about to end.

    True if the push counted on this worker. An AssertionError if the pushed op never runs.
    """
    ran, inner, begun = threading.Event(), threading.Event(), threading.Event()
    is_over = Slots.is_one_too_many
    hits: list[bool] = []
    with engine_of(workers=2) as engine:
        pool = engine._compute

        def push_as_it_leaves(slots: Slots) -> bool:
            found, worker = is_over(slots), current.worker()
            if found and slots is pool.slots and not hits:
                hits.append(worker in pool.searching)
                other = threading.Thread(target=lambda: engine.push(ran.set))
                other.start()
                other.join(PATIENCE_S)
            return found

        def outer() -> bool:
            # A waiting worker is replaced, and then there is one too many.
            engine.push(held_by(inner, begun)).wait(PATIENCE_S)
            return ran.wait(patience_s)

        monkeypatch.setattr(Slots, "is_one_too_many", push_as_it_leaves)
        has_run = engine.push(outer)
        assert begun.wait(PATIENCE_S)
        third, deadline = threading.Event(), time.monotonic() + PATIENCE_S
        while State.BLOCKED not in pool.states.now() and time.monotonic() < deadline:
            third.wait(0.001)
        engine.push(third.set)
        assert third.wait(PATIENCE_S)
        inner.set()
        assert ran.wait(patience_s), "pushed as a worker left, and never run"
        assert has_run.result(PATIENCE_S)
        monkeypatch.undo()
    return any(hits)


def test_a_push_while_one_too_many_leaves_is_not_lost(monkeypatch):
    hits = sum(push_as_one_leaves(monkeypatch) for _ in range(ROUNDS))
    assert hits, "no push counted on the one that left"


def test_a_worker_that_leaves_without_a_last_look_is_found(monkeypatch):
    """The planted bug of the test above."""
    monkeypatch.setattr(WorkerPool, "look_again", lambda pool: None)
    monkeypatch.setattr(States, "uncover", lambda states: None)
    lost = 0
    for _ in range(ROUNDS):
        with monkeypatch.context() as patches:
            try:
                push_as_one_leaves(patches, IMPATIENCE_S)
            except AssertionError:
                lost += 1
                break
    assert lost


def begin_long_ops(workers: int, patience_s: float = PATIENCE_S) -> None:
    """Push long ops behind a backlog of short ops, each when the previous one has begun."""
    with engine_of(workers=workers) as engine:
        gate, begun = threading.Event(), threading.Semaphore(0)

        def long() -> None:
            begun.release()
            assert gate.wait(PATIENCE_S)

        try:
            for _ in range(2):
                short = threading.Event()
                engine.push(short.set)
                assert short.wait(PATIENCE_S)
            for _ in range(3 * STRETCH):
                engine.push(int)
            for index in range(workers):
                engine.push(long)
                assert begun.acquire(timeout=patience_s), f"long op {index} never begins"
        finally:
            gate.set()


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_all_workers_come_for_long_ops_that_follow_short_ones(workers):
    """The worker that watched short ops takes a long op, and then no worker watches."""
    for _ in range(ROUNDS // 4):
        begin_long_ops(workers)


def test_a_watcher_that_goes_to_work_without_a_word_is_found(monkeypatch):
    """The planted bug of the test above: pushes count on the worker in the first long op."""
    monkeypatch.setattr(States, "uncover", lambda states: None)
    found = ""
    # A busy machine rarely lets the worker watch at the right moment.
    for _ in range(20 * ROUNDS):
        try:
            begin_long_ops(3, IMPATIENCE_S)
        except AssertionError as error:
            found = str(error)
            break
    assert "never begins" in found
