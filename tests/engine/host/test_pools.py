"""Worker pools, priorities, back-pressure: which op runs next, and which pushes must wait."""

from __future__ import annotations

import random
import threading
from functools import partial

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, hasty, held_by, together

import cudasync as cs
from cudasync.engine.host.additional_pools import with_pool
from cudasync.engine.host.pool import WorkerPool
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op_classes import FullOp
from cudasync.testing import Latch


def test_a_pool_full_of_sleepers_leaves_compute_all_its_workers():
    gate, x, together = threading.Event(), cs.Var("x"), threading.Barrier(2)
    with engine_of(workers=2, pools={"io": 4}) as engine:
        sleepers = [engine.push(held_by(gate), pool="io") for _ in range(12)]
        for _ in range(100):
            engine.push(lambda: None, reads=[x], writes=[x])
        x.wait(PATIENCE_S)
        pair = [engine.push(lambda: together.wait(PATIENCE_S)) for _ in range(2)]
        for op in pair:
            op.wait(PATIENCE_S)
        assert not any(op.done() for op in sleepers)
        gate.set()
        engine.waitall(PATIENCE_S)


def test_compute_full_of_sleepers_leaves_a_pool_alone():
    gate = threading.Event()
    with engine_of(workers=2, pools={"io": 1}) as engine:
        sleepers = [engine.push(held_by(gate)) for _ in range(5)]
        for _ in range(50):
            engine.push(lambda: None, pool="io").wait(PATIENCE_S)
        assert not any(op.done() for op in sleepers)
        gate.set()


def test_a_pool_of_one_worker_is_one_thread_and_no_op_runs_on_the_caller():
    with engine_of(workers=2, pools={"io": 2, "disk": 1}) as engine:
        places: dict[str, set[int]] = {"compute": set(), "io": set(), "disk": set()}
        for index in range(60):
            pool = ("compute", "io", "disk")[index % 3]
            engine.push(lambda p=pool: places[p].add(threading.get_ident()), pool=pool)
        engine.waitall(PATIENCE_S)
    # Workers of compute and of "io" may visit each other.
    assert threading.get_ident() not in places["compute"] | places["io"] | places["disk"]
    assert len(places["disk"]) == 1
    assert not places["disk"] & (places["compute"] | places["io"])


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_all_wait_are_stood_in_for(workers):
    """Each of forty ops waits for an op that is pushed after all of them."""
    inner: list[cs.Op] = []
    are_pushed = threading.Event()
    with engine_of(workers=workers) as engine:

        def outer(index: int) -> int:
            assert are_pushed.wait(PATIENCE_S)
            return inner[index].result(PATIENCE_S)

        ops = [engine.push(partial(outer, index)) for index in range(40)]
        inner += [engine.push(lambda i=index: i, priority=-1) for index in range(40)]
        are_pushed.set()
        assert [op.result(PATIENCE_S) for op in ops] == list(range(40))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("pool", "io"), [(None, 1), ("io", 1), ("io", 2)])
def test_waits_nest_three_deep_in_every_worker(workers, pool, io):
    with engine_of(workers=workers, pools={"io": io}) as engine:

        def outer(depth: int, index: int) -> list[int]:
            if depth == 0:
                return [index]
            here = pool if depth % 2 else None
            ops = [
                engine.push(partial(outer, depth - 1, 2 * index + side), pool=here)
                for side in (0, 1)
            ]
            return [number for op in ops for number in op.result(PATIENCE_S)]

        tops = [engine.push(partial(outer, 3, index)) for index in range(3)]
        found = [number for op in tops for number in op.result(PATIENCE_S)]
        assert found == list(range(24))


def test_after_the_stand_ins_no_more_run_at_once_than_there_are_workers():
    running, most = set[int](), []
    with engine_of(workers=2) as engine:

        def nest(depth: int) -> None:
            if depth:
                engine.push(lambda: nest(depth - 1)).wait(PATIENCE_S)

        for op in [engine.push(lambda: nest(5)) for _ in range(4)]:
            op.wait(PATIENCE_S)

        def count(index: int) -> None:
            running.add(index)
            most.append(len(running))
            running.discard(index)

        # One gate blocks all ops, so that they become ready together. The test does not wait for
        # compute, where it might run ops itself.
        gate, x, all_ran = threading.Event(), cs.Var("x"), threading.Event()
        engine.push(held_by(gate), writes=[x])
        with hasty():
            ops = [engine.push(partial(count, index), reads=[x]) for index in range(200)]
            last = engine.push(lambda: None, reads=[x], priority=-1)
            last.add_done_callback(all_ran.set)
            gate.set()
            assert all_ran.wait(PATIENCE_S)
            for op in ops:
                op.wait(PATIENCE_S)
    assert max(most) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_ready_ops_run_by_priority_then_in_the_order_of_their_pushes(seed):
    chooser = random.Random(seed)
    priorities = [chooser.choice([-(10**9), -1, 0, 0, 1, 7, 10**9]) for _ in range(150)]
    order: list[int] = []
    gate, begun, x = threading.Event(), threading.Event(), cs.Var("x")
    with engine_of(workers=1) as engine:
        engine.push(held_by(gate, begun), writes=[x])
        assert begun.wait(PATIENCE_S)
        for index, priority in enumerate(priorities):
            # Some ops wait for the blocked op, others only for the worker.
            reads = [x] if chooser.random() < 0.5 else []
            engine.push(partial(order.append, index), reads=reads, priority=priority)
        gate.set()
        finished = threading.Event()
        engine.push(lambda: None, writes=[x], priority=-(10**10)).add_done_callback(finished.set)
        assert finished.wait(PATIENCE_S)
        engine.waitall(PATIENCE_S)
    assert order == sorted(range(150), key=lambda index: (-priorities[index], index))


def test_an_op_that_becomes_ready_later_still_goes_before_those_it_outranks():
    order: list[str] = []
    gate, begun, x = threading.Event(), threading.Event(), cs.Var("x")
    with engine_of(workers=1) as engine:
        engine.push(held_by(gate, begun), writes=[x])
        assert begun.wait(PATIENCE_S)
        for index in range(5):
            engine.push(lambda i=index: order.append(f"low {i}"), reads=[x])
        engine.push(lambda: order.append("first"), writes=[x], priority=3)
        engine.push(lambda: order.append("second"), reads=[x], priority=9)
        engine.push(lambda: order.append("other"), priority=1)
        gate.set()
        engine.waitall(PATIENCE_S)
    # The writer must follow its readers, whatever its priority, and its own reader must follow it.
    assert order == ["other", *(f"low {i}" for i in range(5)), "first", "second"]


@pytest.mark.parametrize("threads", [1, 3])
def test_back_pressure_bounds_what_is_unfinished(threads):
    limit = 4
    pushed: list[None] = []
    finished: list[None] = []
    most: list[int] = []
    with engine_of(workers=2, max_in_flight=limit) as engine, hasty(), Crew() as crew:

        def work() -> None:
            most.append(len(pushed) - len(finished))
            finished.append(None)

        def pusher() -> None:
            for _ in range(300):
                engine.push(work)
                pushed.append(None)

        for _ in range(threads):
            crew.start(pusher)
    assert len(finished) == 300 * threads
    # Each pusher may exceed the limit by one op, if several are let in together.
    assert max(most) <= limit + threads


def test_back_pressure_lets_go_as_ops_fail_or_are_poisoned():
    def fail() -> None:
        raise ValueError("planned")

    x = cs.Var("x")
    with engine_of(workers=2, max_in_flight=2) as engine, Crew() as crew:

        def pusher() -> None:
            for _ in range(100):
                engine.push(fail, writes=[x])
                engine.push(lambda: None, reads=[x], writes=[x])

        for _ in range(3):
            crew.start(pusher)
        crew.join()
        engine.clear_errors()


def test_back_pressure_does_not_hold_what_ops_push_however_deep():
    with engine_of(workers=1, max_in_flight=1) as engine, Crew() as crew:

        def tree(depth: int) -> int:
            if depth == 0:
                return 1
            ops = [engine.push(lambda: tree(depth - 1)) for _ in range(2)]
            return sum(op.result(PATIENCE_S) for op in ops)

        for _ in range(2):
            crew.start(lambda: [engine.push(lambda: tree(4)).result(PATIENCE_S) for _ in range(3)])


def test_back_pressure_waits_for_device_work():
    device, x = cs.Device(0), cs.Var("x")
    with Latch(device) as latch, engine_of(max_in_flight=2) as engine, Crew() as crew:
        engine.push(latch.hold, writes=[x], device=device)
        engine.push(lambda: None, reads=[x])
        third: list[cs.Op] = []
        crew.start(lambda: third.append(engine.push(lambda: "third")))
        # Ops of an engine without a limit serve as a clock for other activity.
        with engine_of() as other:
            for _ in range(50):
                other.push(lambda: None).wait(PATIENCE_S)
        assert third == []
        latch.release()
        crew.join()
        assert third[0].result(PATIENCE_S) == "third"


def test_an_engine_that_closes_lets_go_of_pushers_held_back():
    for _ in range(10):
        gate = threading.Event()
        engine = cs.Engine(workers=1, max_in_flight=1)
        engine.push(held_by(gate))
        outcomes: list[str] = []
        ready = threading.Barrier(4)

        def pusher(engine=engine, ready=ready, outcomes=outcomes) -> None:
            ready.wait(PATIENCE_S)
            try:
                engine.push(lambda: outcomes.append("ran"))
            except cs.ClosedError:
                outcomes.append("refused")

        with hasty(), Crew() as crew:
            for _ in range(2):
                crew.start(pusher)
            crew.start(lambda engine=engine, ready=ready: (ready.wait(PATIENCE_S), engine.close()))
            ready.wait(PATIENCE_S)
            gate.set()
        assert len(outcomes) == 2


def test_what_becomes_ready_while_its_finder_is_in_an_op_is_taken_by_another():
    """An op polls until another op is over. That op's dependent need not wait for the poller."""
    latch, ran = Latch(), threading.Event()
    x, begun = cs.Var("x"), threading.Event()
    with engine_of(workers=2) as engine, latch:
        first = engine.push(lambda stream: latch.hold(stream), writes=x, device=0)
        engine.push(ran.set, reads=x)

        def ask() -> bool:
            begun.set()
            while not first.done():
                pass
            return ran.wait(PATIENCE_S)

        asking = engine.push(ask)
        assert begun.wait(PATIENCE_S)
        latch.release()
        assert asking.result(2 * PATIENCE_S)


def test_a_finaliser_on_a_worker_is_not_held_back():
    """The finaliser pushes from the only thread that could run the ops it would wait for."""
    ran = []

    class Resource:
        def __del__(self) -> None:
            for number in range(4):
                engine.push(lambda number=number: ran.append(number))

    with engine_of(workers=1, max_in_flight=2) as engine:
        engine.push(Resource)
        for _ in range(1000):
            # The next op makes the worker release the previous op and its result.
            engine.push(int).wait(PATIENCE_S)
            if len(ran) == 4:
                break
        assert ran == [0, 1, 2, 3]


def test_who_finds_an_op_ready_inside_of_an_op_rings(monkeypatch):
    """The finder may stay in its own op for long, and another worker must take the ready op."""
    rung: list[bool] = []
    with engine_of(workers=1) as engine:
        pool = engine._compute

        def inside() -> None:
            monkeypatch.setattr(pool, "ring", lambda: rung.append(True))
            ready = FullOp()
            ready.number, ready.priority = 1 << 60, 0
            pool.put(ready)
            assert pool.take() is ready
            monkeypatch.undo()

        engine.push(inside).result(PATIENCE_S)
    assert rung == [True]


@pytest.mark.parametrize("options", [{"trace": True}, {"max_in_flight": 9}, {}])
def test_an_engine_that_plans_all_before_it_chooses_is_told_to_once(options):
    """A dummy entry in a pool's heap makes a draining worker look up from the log."""
    gate, begun = threading.Event(), threading.Event()
    with engine_of(workers=1, **options) as engine:
        engine.push(held_by(gate, begun))
        assert begun.wait(PATIENCE_S)
        for priority in (1, 2, 3):
            engine.push(lambda: None, priority=priority)
        COMBINER.plan()
        told = engine._compute.heap.count((0, 0))
        gate.set()
        assert told == (0 if options else 1)


def test_a_pool_that_comes_while_the_others_are_told_is_told_too(monkeypatch):
    """When an engine becomes ranked or watched, it notifies all its pools."""
    tell = WorkerPool.rank
    with engine_of(workers=1) as engine, monkeypatch.context() as patch:

        def late(pool: WorkerPool, **options: bool) -> None:
            patch.undo()
            with_pool(engine, "late", 1)
            tell(pool, **options)

        patch.setattr(WorkerPool, "rank", late)
        engine._rank()
        assert not engine._pools["late"].is_plain


def test_a_pool_that_many_ask_for_at_once_is_there_once():
    with engine_of(workers=1) as engine:
        found: list[object] = []

        def ask(name: str) -> None:
            with_pool(engine, name, 1)
            found.append(engine._pools[name])

        for number in range(50):
            found.clear()
            together(*[partial(ask, f"pool {number}")] * 4)
            assert len(found) == 4
            assert len(set(found)) == 1
            assert engine.push(lambda: 7, pool=f"pool {number}").result(PATIENCE_S) == 7
