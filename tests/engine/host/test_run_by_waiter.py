"""Short segments of graphs that the waiting thread runs: which thread, and that nothing changes."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextvars import ContextVar
from threading import get_ident

import pytest

import cudasync as cs
from cudasync.engine import current
from cudasync.engine.host import run_by_waiter
from cudasync.engine.log.combiner import Combiner
from cudasync.graph.parts import host as host_part

PATIENCE_S = 40
# In this time an op begins that may begin.
LOOK_S = 0.02
# Enough for a worker or a waiter to be first by chance, if both may be.
LAUNCHES = 30

Wait = Callable[[cs.Op], object]


class Rig:
    """An executable with one function, which calls `todo` and notes its thread."""

    def __init__(self, engine):
        self.engine = engine
        self.y = cs.Var("y")
        self.threads = []
        self.todo = lambda: None
        with cs.use(engine), cs.graph() as g:
            cs.engine().push(self.call, writes=[self.y])
        self.exe = g.instantiate()

    def call(self):
        self.threads.append(get_ident())
        self.todo()

    def launch(self):
        with cs.use(self.engine):
            return self.exe.launch()

    def learn(self):
        """A launch that took a short time, so that waiters may run the next."""
        self.todo = lambda: None
        self.launch().wait()

    def by_waiter(self, todo, wait: Wait = cs.Op.wait):
        """Launch `todo` and wait, until the waiting thread has run it: a worker may be first."""
        while True:
            self.learn()
            self.todo = todo
            raised = None
            try:
                wait(self.launch())
            except BaseException as error:
                raised = error
            if self.threads[-1] != get_ident():
                self.engine.clear_errors()
            elif raised is not None:
                raise raised
            else:
                return

    def threads_of(self, wait: Wait):
        """The threads that ran many launches."""
        self.learn()
        self.threads.clear()
        for _ in range(LAUNCHES):
            wait(self.launch())
        self.engine.waitall()
        return set(self.threads)


@pytest.fixture
def rig():
    with cs.Engine(workers=2) as engine:
        yield Rig(engine)


@pytest.mark.parametrize("what", ["op", "variable", "all"])
def test_a_waiting_thread_runs_what_it_waits_for(rig, what):
    waits = {
        "op": cs.Op.wait,
        "variable": lambda op: rig.y.wait(),
        "all": lambda op: rig.engine.waitall(),
    }
    rig.by_waiter(lambda: None, waits[what])


def test_what_nobody_waits_for_runs(rig):
    rig.learn()
    came = threading.Event()
    rig.todo = came.set
    rig.launch()
    assert came.wait(PATIENCE_S)


def test_the_first_launch_is_left_to_a_worker(rig):
    rig.launch().wait()
    assert get_ident() not in rig.threads


@pytest.mark.parametrize("why", ["took long", "failed"])
def test_what_took_long_or_failed_is_left_to_a_worker(rig, why, monkeypatch):
    def fail():
        raise LookupError

    rig.learn()
    if why == "failed":
        rig.todo = fail
    else:
        monkeypatch.setattr(host_part, "SHORT_S", 0.0)
    rig.launch().exception(PATIENCE_S)
    rig.engine.clear_errors()
    rig.threads.clear()
    rig.todo = lambda: None
    rig.launch().wait()
    assert get_ident() not in rig.threads


def test_a_wait_with_a_limit_runs_nothing(rig):
    assert get_ident() not in rig.threads_of(lambda op: op.wait(PATIENCE_S))


def test_a_coroutine_runs_nothing(rig):
    """Neither a coroutine that awaits the op, nor one that blocks its loop."""

    async def awaiting(op):
        await op

    async def blocking(op):
        op.wait()

    for wait in (awaiting, blocking):
        assert get_ident() not in rig.threads_of(lambda op, wait=wait: asyncio.run(wait(op)))


def test_an_op_that_waits_inside_runs_nothing(rig):
    """An op's thread may be a worker's: it would bury its own op."""
    runners = []

    def outer():
        runners.append(get_ident())
        rig.launch().wait()

    rig.learn()
    for _ in range(LAUNCHES):
        rig.engine.push(outer).wait()
        assert rig.threads[-1] != runners[-1]


@pytest.mark.parametrize(
    "options", [{"workers": 1}, {"workers": 2, "trace": True}, {"workers": 2, "max_in_flight": 5}]
)
def test_pools_that_promise_more_are_left_to_their_workers(options):
    with cs.Engine(**options) as engine:
        assert get_ident() not in Rig(engine).threads_of(cs.Op.wait)


def test_each_launch_runs_once_and_in_order_among_threads_that_wait(rig):
    """Several threads launch one executable, and others on the same variable."""
    ran = []
    count = iter(range(10**6))
    rig.learn()
    rig.todo = lambda: ran.append(next(count))

    def work(number):
        for each in range(60):
            if (each + number) % 3:
                rig.launch().wait()
            else:
                rig.engine.push(rig.call, reads=[rig.y], writes=[rig.y])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    rig.engine.waitall()
    assert ran == [*range(180)]


VALUE: ContextVar[str] = ContextVar("value", default="of a new thread")


def test_the_function_sees_the_engine_of_the_op_and_no_context_of_the_waiter(rig):
    seen = []

    def look():
        seen[:] = [cs.engine(), VALUE.get(), current.is_in_op()]
        VALUE.set("of the function")

    token = VALUE.set("of the waiter")
    with cs.Engine(workers=1) as other:
        rig.by_waiter(look)
        assert seen == [rig.engine, "of a new thread", True]
        assert VALUE.get() == "of the waiter"
        assert cs.engine() is other
        assert not current.is_in_op()
        assert current.worker_or_guest() is None
    VALUE.reset(token)


def most_at_once(rig):
    """How many functions of the pool run at once, at most, one of them in the waiter."""
    lock = threading.Lock()
    running, most, left = 0, 0, 0
    crowded, over = threading.Event(), threading.Event()

    def run():
        nonlocal running, most, left
        with lock:
            running += 1
            most = max(most, running)
        if most > 2:
            crowded.set()
        # Gives others the time to begin, if they may.
        crowded.wait(LOOK_S)
        with lock:
            running -= 1
            left -= 1
        if not left:
            over.set()

    def first():
        nonlocal running, most, left
        running, most, left = 1, 1, 6
        crowded.clear()
        over.clear()
        for _ in range(left):
            rig.engine.push(run)
        assert over.wait(PATIENCE_S)

    rig.by_waiter(first)
    return most


def test_the_pool_runs_no_more_ops_at_once(rig):
    assert most_at_once(rig) == 2


def test_an_op_beyond_the_limit_is_found(rig, monkeypatch):
    monkeypatch.setattr(type(rig.engine._compute.permits), "take", lambda self, worker: True)
    assert most_at_once(rig) > 2


def runs_beside(rig):
    """Whether an op that is pushed during the waiter's op runs meanwhile."""
    ran = []

    def push_and_look():
        came = threading.Event()
        rig.engine.push(came.set)
        ran[:] = [came.wait(PATIENCE_S)]

    rig.by_waiter(push_and_look)
    return ran[0]


def is_planned_beside(rig, until):
    """Whether a woken worker plans the waiter's op meanwhile, as far as that shows by `until`."""
    found = []

    def look():
        looks = threading.Event()
        found[:] = [False]
        while not until(found):
            # The worker that the push rang for has the time to look.
            looks.wait(LOOK_S)
            found.append(bool(rig.y._histories))

    rig.by_waiter(look)
    return any(found)


def test_an_op_pushed_behind_it_is_not_left_alone(rig):
    assert runs_beside(rig)


def test_the_woken_worker_does_not_plan_it(rig):
    assert not is_planned_beside(rig, until=lambda found: len(found) > 2)


def test_a_worker_that_plans_it_is_found(rig, monkeypatch):
    monkeypatch.setattr(Combiner, "is_left_to_a_waiter", False)
    assert is_planned_beside(rig, until=lambda found: any(found) or len(found) > 500)


def together(rig, patience_s=PATIENCE_S):
    """Two ops that need both places of the pool."""
    meeting = threading.Barrier(2)
    return [rig.engine.push(lambda: meeting.wait(patience_s)) for _ in range(2)]


def test_while_the_op_waits_inside_others_have_its_place(rig):
    rig.by_waiter(lambda: [op.wait() for op in together(rig)])


def test_a_place_that_a_waiting_op_keeps_is_found(rig, monkeypatch):
    monkeypatch.setattr(current, "worker_or_guest", current.worker)
    errors = []
    rig.by_waiter(lambda: errors.extend(op.exception() for op in together(rig, LOOK_S)))
    assert all(isinstance(each.cause, threading.BrokenBarrierError) for each in errors[-2:])


def test_while_a_loop_in_the_op_awaits_others_have_its_place(rig):
    async def both():
        for op in together(rig):
            await op

    rig.by_waiter(lambda: asyncio.run(both()))


def test_a_wait_that_can_not_end_is_refused(rig):
    def wait_for_later():
        rig.engine.push(lambda: None, reads=[rig.y]).wait()

    with pytest.raises(cs.OpError) as caught:
        rig.by_waiter(wait_for_later)
    assert isinstance(caught.value.cause, cs.DeadlockError)
    rig.engine.clear_errors()


@pytest.mark.parametrize("error", [LookupError, SystemExit, GeneratorExit])
def test_a_failure_is_that_of_the_op_and_poisons_its_data(rig, error):
    def fail():
        raise error("as planned")

    with pytest.raises(cs.OpError, match="as planned") as caught:
        rig.by_waiter(fail)
    assert isinstance(caught.value.cause, error)
    with pytest.raises(cs.OpError, match="as planned"):
        rig.engine.push(lambda: None, reads=[rig.y]).wait()
    rig.engine.clear_errors()
    rig.by_waiter(lambda: None)


def interrupted(rig, times=1):
    """Ctrl-C comes in the function that the waiter runs; whether the function went on."""
    done = []

    def interrupt():
        done.clear()
        for _ in range(times if get_ident() == threading.main_thread().ident else 0):
            signal.raise_signal(signal.SIGINT)
        done.append(True)

    with pytest.raises(KeyboardInterrupt):
        rig.by_waiter(interrupt)
    return bool(done)


def test_ctrl_c_ends_the_wait_and_neither_the_function_nor_its_data(rig):
    assert interrupted(rig)
    rig.y.wait()
    rig.by_waiter(lambda: None)


def test_the_second_ctrl_c_ends_the_function(rig):
    assert not interrupted(rig, times=2)
    with pytest.raises(cs.OpError) as caught:
        rig.y.wait()
    assert isinstance(caught.value.cause, KeyboardInterrupt)
    rig.engine.clear_errors()


def test_ctrl_c_that_is_not_deferred_is_found_to_poison(rig, monkeypatch):
    monkeypatch.setattr(run_by_waiter, "uninterrupted", lambda call: call())
    assert not interrupted(rig)
    with pytest.raises(cs.OpError):
        rig.y.wait()
    rig.engine.clear_errors()
