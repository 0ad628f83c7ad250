"""No wake-up is lost: every sleeping worker or waiter is woken when its condition comes true.

Each step of these programs needs every wake-up of the step before. A lost wake-up is a hang, which
ends in a TimeoutError. The watchdog would repair the loss, so it is suspended in all these tests.
"""

from __future__ import annotations

import random
import threading
import time

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, hasty, without_watchdog

import cudasync as cs
from cudasync.engine import current
from cudasync.engine.host.pool import WorkerPool
from cudasync.engine.host.states import State
from cudasync.engine.log.combiner import COMBINER

pytestmark = pytest.mark.sampled(2)


@pytest.fixture(autouse=True)
def _suspended_watchdog():
    with without_watchdog():
        yield


def push_and_wait(threads: int, workers: int, rounds: int) -> None:
    count = [0] * threads
    with engine_of(workers=workers) as engine, hasty(), Crew(patience_s=120) as crew:

        def step(thread: int) -> None:
            count[thread] += 1

        def pusher(thread: int) -> None:
            for _ in range(rounds // threads):
                engine.push(lambda: step(thread)).wait(PATIENCE_S)

        for thread in range(threads):
            crew.start(pusher, thread)
    assert sum(count) == rounds


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_op_that_is_waited_for_at_once_is_never_missed(threads):
    push_and_wait(threads, workers=2, rounds=10_000)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("threads", [1, 2, 4, 9])
def test_tens_of_thousands_of_ops_waited_for_at_once_are_never_missed(threads, workers):
    push_and_wait(threads, workers, rounds=72_000)


def test_a_worker_of_one_never_sleeps_through_a_push():
    """The test takes the result without a wait, so only the worker can produce it."""
    with engine_of(workers=1) as engine, hasty():
        for _ in range(3000):
            ran = threading.Event()
            engine.push(ran.set)
            assert ran.wait(PATIENCE_S)


def test_workers_rest_where_the_log_ends_with_a_segment():
    """Behind the SEAL there is nothing to plan, so no worker searches there again and again."""
    with engine_of(workers=1, max_in_flight=9) as engine:
        op = engine.push(lambda: COMBINER.log.tail.seal())
        op.wait(PATIENCE_S)
        assert COMBINER.log.tail.is_sealed
        assert COMBINER.unplanned == 0
        pool, never = engine._compute, threading.Event()
        deadline = time.monotonic() + PATIENCE_S
        while State.ASLEEP not in pool.states.now():
            assert time.monotonic() < deadline, "the worker does not come to rest"
            never.wait(0.001)
        # The worker still wakes for the next op.
        engine.push(lambda: None).wait(PATIENCE_S)


def test_two_workers_are_both_woken_for_two_ops():
    with engine_of(workers=2) as engine, hasty():
        for _ in range(1500):
            together = threading.Barrier(3)
            for _ in range(2):
                engine.push(lambda b=together: b.wait(PATIENCE_S))
            together.wait(PATIENCE_S)


def ready_at_once(pool: str | None, patience_s: float = PATIENCE_S) -> bool:
    """Three ops that wait for each other become ready together, at the end of an op in `pool`.

    False if one of them waits in vain.
    """
    x = cs.Var("x")
    with engine_of(workers=3, pools={"io": 1}) as engine, hasty():
        for _ in range(300):
            gate, together = threading.Event(), threading.Barrier(3)
            engine.push(lambda g=gate: g.wait(PATIENCE_S), writes=[x], pool=pool)
            ops = [engine.push(lambda b=together: b.wait(patience_s), reads=[x]) for _ in range(3)]
            gate.set()
            failures = [op.exception(PATIENCE_S) for op in ops]
            if any(failures):
                return False
    return True


@pytest.mark.parametrize("pool", [None, "io"])
def test_ops_that_become_ready_together_find_all_workers(pool):
    """One ring serves all the ops: a worker that takes an op rings for the rest."""
    assert ready_at_once(pool)


def test_a_worker_that_takes_one_and_does_not_ring_for_the_rest_is_found(monkeypatch):
    """The planted bug of the test above."""
    ring = WorkerPool.ring

    def ring_for_others(pool: WorkerPool) -> None:
        worker = current.worker()
        if worker is None or worker.pool is not pool:
            ring(pool)

    monkeypatch.setattr(WorkerPool, "ring", ring_for_others)
    # A waiter would also repair the loss.
    monkeypatch.setattr(WorkerPool, "rescue", lambda pool: None)
    assert not ready_at_once("io", patience_s=0.3)


def test_two_engines_play_ping_pong():
    """Each op pushes the next op onto the other engine, whose worker is falling asleep."""
    with engine_of(workers=1) as one, engine_of(workers=1) as two, hasty():
        has_ended = threading.Event()

        def play(left: int, here: cs.Engine, there: cs.Engine) -> None:
            if left == 0:
                has_ended.set()
            else:
                there.push(lambda: play(left - 1, there, here))

        one.push(lambda: play(4000, one, two))
        assert has_ended.wait(PATIENCE_S)


def test_two_threads_play_ping_pong_through_variables():
    """Each thread waits for the variable that the other thread's op writes."""
    x, y, log = cs.Var("x"), cs.Var("y"), []
    with engine_of(workers=2) as engine, hasty(), Crew() as crew:
        turns = [threading.Semaphore(1), threading.Semaphore(0)]

        def play(me: int, mine: cs.Var, other: cs.Var) -> None:
            for _ in range(1000):
                assert turns[me].acquire(timeout=PATIENCE_S)
                engine.push(lambda: log.append(me), reads=[other], writes=[mine])
                turns[1 - me].release()
                mine.wait(PATIENCE_S)

        crew.start(play, 0, x, y)
        crew.start(play, 1, y, x)
        crew.join()
    assert log == [0, 1] * 1000


def test_a_wait_that_times_out_as_the_op_ends_leaves_the_op_to_the_next_wait():
    chooser = random.Random(5)
    with engine_of(workers=1) as engine, hasty():
        for _ in range(1500):
            op = engine.push(lambda: "result")
            try:
                op.wait(chooser.choice([0.0, 1e-6, 1e-5, 5e-5, 1e-4]))
            except TimeoutError:
                assert op.result(PATIENCE_S) == "result"
            assert op.done()


def test_dependents_of_device_and_host_ops_are_woken_in_turn():
    device, x, log = cs.Device(0), cs.Var("x"), []
    with engine_of(workers=1) as engine, hasty():
        for index in range(200):
            engine.push(lambda i=index: log.append(i), writes=[x])
            engine.push(lambda stream: None, reads=[x], writes=[x], device=device)
            if index % 3 == 0:
                x.wait(PATIENCE_S)
        engine.push(lambda: None, reads=[x]).wait(PATIENCE_S)
    assert log == list(range(200))


def test_a_device_op_that_is_waited_for_at_once_is_never_missed():
    device = cs.Device(0)
    with engine_of(workers=1) as engine, hasty(), Crew() as crew:

        def pusher() -> None:
            for index in range(150):
                op = engine.push(lambda stream, i=index: i, device=device)
                assert op.result(PATIENCE_S) == index

        for _ in range(3):
            crew.start(pusher)
