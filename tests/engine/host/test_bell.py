"""A push rings for a worker at rest, and the worker comes without the ring: who takes the ring?

Pushes do not ring while the bell rings, so a ring that nobody takes would silence them. As in
`test_worker_states.py` the watchdog is suspended, and no test waits for an op. One push is forced
between two steps of a worker that falls asleep; so nothing here depends on luck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of, held_by, without_watchdog

import cudasync as cs
from cudasync.atomic import Bell
from cudasync.engine import current
from cudasync.engine.host.pool import WorkerPool
from cudasync.engine.host.states import State, States

# The patience of tests that expect a loss, and how often they try: an entry of another engine lets
# a worker come as well.
IMPATIENCE_S = 0.3
TRIES = 20


@pytest.fixture(autouse=True)
def _suspended_watchdog():
    with without_watchdog():
        yield


def push_as_a_worker_falls_asleep(
    patches: pytest.MonkeyPatch, engine: cs.Engine, fn: Callable[[], object], *, is_late: bool
) -> None:
    """Let the first worker begin `fn`, whose push rang for it, without having taken the ring.

    With `is_late`, the push sees the worker at rest, and rings once the worker is in `fn`.
    """
    pool = engine._compute
    start, begun, about_to_ring, may_ring = (threading.Event() for _ in range(4))
    now, ring = States.now, Bell.ring
    pushers: list[threading.Thread] = []

    def first() -> None:
        begun.set()
        fn()

    def push_meanwhile(states: States) -> list[State]:
        """The last look of a worker at the table before it looks for work and sleeps."""
        worker = current.worker()
        is_asleep = worker is not None and states.rows.get(worker) is State.ASLEEP
        if is_asleep and states is pool.states and not pushers:
            pushers.append(threading.Thread(target=lambda: engine.push(first)))
            pushers[0].start()
            if is_late:
                assert about_to_ring.wait(PATIENCE_S)
            else:
                pushers[0].join(PATIENCE_S)
        return now(states)

    def ring_late(bell: Bell) -> None:
        if is_late and threading.current_thread() in pushers:
            about_to_ring.set()
            assert may_ring.wait(PATIENCE_S)
        ring(bell)

    with patches.context() as patched:
        patched.setattr(States, "now", push_meanwhile)
        patched.setattr(Bell, "ring", ring_late)
        engine.push(start.set)
        assert begun.wait(PATIENCE_S)
        may_ring.set()
        pushers[0].join(PATIENCE_S)
    assert start.is_set()


def comes_for_a_second_op(
    patches: pytest.MonkeyPatch, *, is_late: bool, patience_s: float = PATIENCE_S
) -> bool:
    """The only worker so far is in a long op, begun as above: another one must come."""
    gate, second = threading.Event(), threading.Event()
    with engine_of(workers=2) as engine:
        try:
            push_as_a_worker_falls_asleep(patches, engine, held_by(gate), is_late=is_late)
            engine.push(second.set)
            return second.wait(patience_s)
        finally:
            gate.set()


def comes_for_a_lent_slot(patches: pytest.MonkeyPatch, patience_s: float = PATIENCE_S) -> bool:
    """The only worker lends its slot inside an op, begun as above: a thread must come for it.

    A wait for an op would also plan the log after a while, so the op does not wait by itself. With
    a trace, the op is planned before it runs: else its own entry would count as unplanned.
    """
    gate, may_lend, lends, second = (threading.Event() for _ in range(4))
    with engine_of(workers=1, trace=True) as engine:

        def lend() -> None:
            worker = current.worker()
            assert worker is not None
            assert may_lend.wait(PATIENCE_S)
            with engine._compute.blocked(worker):
                lends.set()
                assert gate.wait(PATIENCE_S)

        try:
            push_as_a_worker_falls_asleep(patches, engine, lend, is_late=True)
            may_lend.set()
            assert lends.wait(PATIENCE_S)
            engine.push(second.set)
            return second.wait(patience_s)
        finally:
            gate.set()


def leave_the_ring(pool: WorkerPool) -> None:
    """A planted bug: a worker that comes without its ring leaves it."""


def ring_and_go(pool: WorkerPool) -> None:
    """A planted bug: a thread rings, and does not look whether a worker is still at rest."""
    pool.bell.ring()


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
def test_a_ring_that_its_worker_does_not_take_silences_no_later_push(monkeypatch, is_late):
    assert comes_for_a_second_op(monkeypatch, is_late=is_late)


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
def test_a_ring_that_silences_later_pushes_is_found(monkeypatch, is_late):
    """The planted bugs of the test above."""
    if is_late:
        monkeypatch.setattr(WorkerPool, "ring_for_a_sleeper", ring_and_go)
    else:
        monkeypatch.setattr(WorkerPool, "take_ring", leave_the_ring)
    assert not all(
        comes_for_a_second_op(monkeypatch, is_late=is_late, patience_s=IMPATIENCE_S)
        for _ in range(TRIES)
    )


def test_a_ring_left_over_silences_no_push_once_a_slot_is_lent(monkeypatch):
    assert comes_for_a_lent_slot(monkeypatch)


def test_a_worker_that_lends_its_slot_and_leaves_a_ring_is_found(monkeypatch):
    """The planted bug of the test above."""
    monkeypatch.setattr(WorkerPool, "take_ring", leave_the_ring)
    assert not all(comes_for_a_lent_slot(monkeypatch, IMPATIENCE_S) for _ in range(TRIES))
