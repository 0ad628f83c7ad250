"""Pools whose next op the waiting thread runs: which thread runs an op, and none is forgotten."""

from __future__ import annotations

import threading
from contextlib import suppress
from threading import get_ident

import pytest
from helpers.concurrency.thread_crew import comes_true, without_watchdog

import cudasync as cs
from cudasync.atomic import Bell
from cudasync.engine.host import awaited_pool
from cudasync.engine.host.additional_pools import with_pool
from cudasync.engine.log import fences
from cudasync.testing import HostLatch

PATIENCE_S = 40


rest = Bell.sleep


class NotingBell(Bell):
    """Knows whether the worker sleeps: then it has looked for work, and looks no more by itself."""

    has_sleeper = False

    def ring(self):
        self.has_sleeper = False
        super().ring()

    def sleep(self, timeout=None):
        self.has_sleeper = self.is_silent()
        try:
            return rest(self, timeout)
        finally:
            self.has_sleeper = False


class Rig:
    """An engine with a pool of awaited ops. The ops record their threads."""

    def __init__(self, engine):
        self.engine = engine
        with_pool(engine, "own", 1, awaited_pool.AwaitedPool)
        self.pool = engine._pools["own"]
        self.pool.bell = NotingBell()
        self.pool.is_silent = self.pool.bell.is_silent
        self.order = cs.Var()
        self.ran = []

    def push(self, fn=None, reads=()):
        """Push from this one line of code, each op behind the last."""
        fn = fn or (lambda: self.ran.append(get_ident()))
        return awaited_pool.push(self.engine, fn, "own", reads=reads, writes=[self.order])

    def push_elsewhere(self, fn):
        """Push from another line of code."""
        return awaited_pool.push(self.engine, fn, "own", writes=[self.order])

    def learn(self):
        """Push until the waiter ran the last op, and the pool has remembered the line of code."""
        while not self.pool.places:
            self.push().wait()
        del self.ran[:]

    def put_off(self, make=lambda: None):
        """A push whose ring was put off, and its function `make()`.

        A push that comes while the worker is awake is not put off, and a worker that falls asleep
        may find the op.
        """
        while True:
            self.learn()
            assert comes_true(lambda: self.pool.bell.has_sleeper and self.pool.is_silent())
            fn = make()
            op = self.push(fn)
            if self.pool.is_put_off:
                return op, fn
            # The watchdog was first. This wait may run `fn`, in which Ctrl-C may arrive.
            with suppress(KeyboardInterrupt):
                op.exception()
            self.engine.clear_errors()


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch):
    """However slow the machine, every wait counts as soon."""
    monkeypatch.setattr(awaited_pool, "SOON_S", float("inf"))


@pytest.fixture
def rig():
    with cs.Engine(workers=1) as engine:
        yield Rig(engine)


@pytest.fixture
def unwatched():
    """A rig in which a push that is put off is rung for by no watchdog, however late its wait."""
    with without_watchdog(), cs.Engine(workers=1) as engine:
        made = Rig(engine)
        yield made
        # A test that failed may have left an op that nobody would run.
        made.pool.ring()


@pytest.mark.parametrize("wait", ["op", "variable", "all"])
def test_who_waits_runs_it_and_nobody_is_woken(unwatched, wait):
    rig = unwatched
    op, _ = rig.put_off()
    {"op": op.wait, "variable": rig.order.wait, "all": rig.engine.waitall}[wait]()
    assert rig.ran == [get_ident()]
    assert not rig.pool.is_put_off


def test_what_nobody_waits_for_is_run_all_the_same_and_not_put_off_again(rig):
    came = []

    def event():
        came.append(threading.Event())
        return came[-1].set

    rig.put_off(event)
    assert came[-1].wait(PATIENCE_S)
    # The worker may have been awake, and may have run the op before the watchdog.
    rig.push()
    assert not rig.pool.is_put_off


def test_a_second_push_of_known_code_is_put_off_too_and_who_waits_runs_both(unwatched):
    rig = unwatched
    rig.put_off()
    second = rig.push()
    assert rig.pool.is_put_off
    second.wait()
    assert rig.ran == [get_ident()] * 2
    # The end of the first op made the second ready, and woke nobody for it.
    assert rig.pool.bell.has_sleeper
    assert not rig.pool.is_put_off


def test_a_push_of_other_code_rings(unwatched):
    rig, came = unwatched, threading.Event()
    rig.put_off()
    rig.push_elsewhere(came.set)
    assert not rig.pool.is_put_off
    assert came.wait(PATIENCE_S)


def test_a_later_push_rings(unwatched, monkeypatch):
    rig, came = unwatched, threading.Event()
    rig.put_off()
    monkeypatch.setattr(awaited_pool, "SOON_S", 0)
    rig.push(came.set)
    assert not rig.pool.is_put_off
    assert came.wait(PATIENCE_S)


def test_after_a_late_wait_no_push_is_put_off(unwatched, monkeypatch):
    """Something was computed between the push and the wait: the next time the op overlaps it."""
    rig = unwatched
    op, _ = rig.put_off()
    monkeypatch.setattr(awaited_pool, "SOON_S", 0)
    op.wait()
    assert rig.ran == [get_ident()]
    came = threading.Event()
    monkeypatch.setattr(awaited_pool, "SOON_S", float("inf"))
    rig.push(came.set)
    assert not rig.pool.is_put_off
    assert came.wait(PATIENCE_S)


def test_a_wait_of_another_thread_during_the_push_does_not_lose_the_ring(unwatched, monkeypatch):
    rig = unwatched
    push = awaited_pool.general_push.push

    def beside_a_wait(*args, **options):
        # Its wait is over before this push delays its ring. (`waitall` sees that all is over.)
        waiter = threading.Thread(target=fences.wait_for_all, args=[rig.engine, None])
        waiter.start()
        waiter.join(PATIENCE_S)
        return push(*args, **options)

    rig.learn()
    assert comes_true(lambda: rig.pool.bell.has_sleeper and rig.pool.is_silent())
    monkeypatch.setattr(awaited_pool.general_push, "push", beside_a_wait)
    op = rig.push()
    assert comes_true(lambda: op.finished)
    assert rig.ran != [get_ident()]


def beside_a_rung_worker(rig, monkeypatch, nap):
    """An op with a delayed ring, beside a pool with a ring for a worker that is not awake yet.

    `nap()` is called in place of the waiter's sleep: the worker is awake behind it if it is true.
    """
    awake = [True]
    with_pool(rig.engine, "other", 1)
    monkeypatch.setattr(rig.engine._pools["other"], "is_silent", lambda: awake[-1])
    op, _ = rig.put_off()
    awake.append(False)
    monkeypatch.setattr(awaited_pool.time, "sleep", lambda seconds: awake.append(nap()))
    return op


def naps_before(rig, monkeypatch, is_awake):
    """The naps of a waiter before it runs such an op. At the end of each, `is_awake(their number)`
    tells whether the worker has woken up."""
    naps = []

    def nap():
        naps.append(None)
        return is_awake(len(naps))

    op = beside_a_rung_worker(rig, monkeypatch, nap)
    op.wait()
    assert op.finished
    return len(naps)


def test_before_an_op_a_waiter_lets_rung_workers_wake_up(unwatched, monkeypatch):
    assert naps_before(unwatched, monkeypatch, lambda naps: naps == 2) == 2


def test_it_gives_up_on_a_worker_that_does_not_come(unwatched, monkeypatch):
    found = naps_before(unwatched, monkeypatch, lambda naps: False)
    assert found == awaited_pool.MOST_NAPS


def test_ctrl_c_during_a_nap_leaves_the_op_to_the_worker(unwatched, monkeypatch):
    def interrupt():
        monkeypatch.undo()
        raise KeyboardInterrupt

    op = beside_a_rung_worker(unwatched, monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        op.wait()
    assert comes_true(lambda: op.finished)
    unwatched.push().wait(PATIENCE_S)


def test_it_does_not_nap_where_nobody_was_rung_for(unwatched, monkeypatch):
    unwatched.learn()
    monkeypatch.setattr(awaited_pool.time, "sleep", lambda seconds: pytest.fail("it naps"))
    unwatched.push().wait()


def test_a_wait_with_a_deadline_runs_nothing(rig):
    rig.put_off()[0].wait(PATIENCE_S)
    assert get_ident() not in rig.ran


def test_it_waits_for_what_comes_before(rig):
    rig.learn()
    before, order = cs.Var(), []
    with HostLatch() as latch:

        def first():
            latch.wait()
            order.append("first")

        rig.engine.push(first, writes=[before])
        op = rig.push(lambda: order.append("second"), reads=[before])
        waiter = threading.Thread(target=op.wait)
        waiter.start()
        while op._node is None or not op._node.sleepers:
            pass
        assert not op.done()
        latch.release()
        waiter.join(PATIENCE_S)
    assert order == ["first", "second"]


class Interrupted:
    """A function in which Ctrl-C arrives once."""

    def __init__(self, *, can_go_on):
        self.can_go_on = can_go_on
        self.calls = []

    def __call__(self):
        self.calls.append(get_ident())
        if len(self.calls) == 1:
            raise KeyboardInterrupt


def test_after_ctrl_c_the_worker_goes_on_with_what_can_go_on(unwatched):
    op, fn = unwatched.put_off(lambda: Interrupted(can_go_on=True))
    with pytest.raises(KeyboardInterrupt):
        op.wait()
    op.wait(PATIENCE_S)
    assert len(fn.calls) == 2
    assert fn.calls[0] == get_ident() != fn.calls[1]


def test_ctrl_c_fails_what_can_not_go_on(unwatched):
    rig = unwatched
    op, _ = rig.put_off(lambda: Interrupted(can_go_on=False))
    with pytest.raises(KeyboardInterrupt):
        op.wait()
    assert isinstance(op.exception().cause, KeyboardInterrupt)
    rig.engine.clear_errors()


def test_what_reads_a_failure_is_poisoned_and_not_run(rig):
    rig.learn()
    value = cs.Var()
    rig.engine.push(lambda: 1 / 0, writes=[value])
    op = rig.push(reads=[value])
    with pytest.raises(cs.OpError):
        op.wait()
    assert not rig.ran
    rig.engine.clear_errors()


def test_one_thread_runs_each_op(rig):
    """Several threads wait, with the worker beside them."""
    runs = []

    def work(number):
        for each in range(50):
            op = rig.push(lambda each=each: runs.append((number, each)))
            if each % 3:
                op.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    rig.engine.waitall()
    assert sorted(runs) == [(number, each) for number in range(3) for each in range(50)]
    for number in range(3):
        assert [each for who, each in runs if who == number] == list(range(50))


def test_on_a_serial_engine_it_is_a_push():
    with cs.Engine("serial") as engine:
        with_pool(engine, "own", 1, awaited_pool.AwaitedPool)
        assert awaited_pool.push(engine, lambda: 3, "own").result() == 3
