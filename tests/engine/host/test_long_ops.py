"""Long host ops that release the GIL are spread over all workers, and add no worker."""

from __future__ import annotations

import hashlib
import random
import threading
from threading import get_ident
from types import SimpleNamespace

import pytest
from helpers.concurrency.bytecode_freezer import Freezer
from helpers.concurrency.freeze_test import is_engine
from helpers.concurrency.thread_crew import (
    PATIENCE_S,
    comes_true,
    engine_of,
    held_by,
    without_watchdog,
)

import cudasync as cs
from cudasync.engine.host import drain_loop, state_transitions
from cudasync.engine.host import worker as worker_module
from cudasync.engine.log.combiner import COMBINER

OPS = 250
BURSTS = 5


@pytest.fixture
def engine():
    with cs.Engine(workers=2) as engine:
        yield engine


def threads_of_a_burst(engine: cs.Engine, data: bytes, ops: int = OPS) -> list[int]:
    """The thread of each op, in a graph of ops that hash `data`."""
    draw = random.Random(ops)
    variables = [cs.Var() for _ in range(16)]
    threads: list[int] = []

    def op() -> None:
        threads.append(get_ident())
        hashlib.sha256(data).digest()

    for _ in range(ops):
        engine.push(op, reads=draw.sample(variables, 2), writes=draw.sample(variables, 1))
    engine.waitall()
    assert len(threads) == ops
    return threads


def test_both_workers_take_part_in_every_burst(engine):
    """Each op ends only beside another running op, so one worker alone would not finish."""
    for _ in range(BURSTS):
        together, threads = threading.Barrier(2), []

        def op(together=together, threads=threads) -> None:
            together.wait(PATIENCE_S)
            threads.append(get_ident())

        for _ in range(2 * BURSTS):
            engine.push(op)
        engine.waitall(PATIENCE_S)
        assert len(set(threads)) == 2


def test_no_worker_is_added_because_all_is_planned_while_ops_run(engine):
    """When all ops are planned, planning stands still. This alone is no sign of trouble."""
    gate, pool = threading.Event(), engine._compute
    try:
        for _ in range(pool.size):
            begun = threading.Event()
            engine.push(held_by(gate, begun))
            assert begun.wait(PATIENCE_S)
        rest = [engine.push(lambda: None) for _ in range(OPS)]
        COMBINER.plan()
        assert len(pool.heap) >= OPS
        assert not COMBINER.unplanned
        # A waiter does the same after a while without progress.
        for _ in range(BURSTS):
            pool.rescue()
        assert len(pool.workers) == pool.size
        assert not any(op.done() for op in rest)
    finally:
        gate.set()


@pytest.mark.usefixtures("tracing_ends")
def test_a_worker_that_is_suspended_is_replaced_and_then_leaves():
    """One of two workers runs an op, the other is suspended between two ops, and none is idle."""
    gate, freezer = threading.Event(), Freezer(100, is_engine)
    with without_watchdog(), engine_of(workers=2) as engine:
        pool = engine._compute
        try:
            together = threading.Barrier(2)
            engine.push(lambda: (together.wait(PATIENCE_S), held_by(gate)()))
            engine.push(lambda: (together.wait(PATIENCE_S), freezer.install()))
            freezer.settle(may_sleep=False)
            assert freezer.is_frozen
            ran = threading.Event()
            engine.push(ran.set)
            never, rounds = threading.Event(), 0
            while not ran.is_set() and rounds < 1000:
                # A waiter does the same after a while without progress. However often it does so,
                # it adds one worker.
                pool.rescue()
                rounds += 1
                never.wait(0.001)
            assert ran.is_set()
            # A new worker may be taken for suspended before it runs anything. Then it is replaced
            # in turn, and leaves before or after its successor comes.
            assert comes_true(lambda: len(pool.workers) == 3)
            assert len([each for each in pool.workers if not each.successors]) == 2
        finally:
            freezer.release()
        while len(pool.workers) > 2 and rounds < 10_000:
            rounds += 1
            never.wait(0.001)
        assert len(pool.workers) == 2, "who was replaced ends when it comes on"
        gate.set()
        engine.push(lambda: None).wait(PATIENCE_S)


def test_ops_that_are_shared_out_are_planned_several_at_a_time(monkeypatch):
    """A worker that takes a ready op need not become the combiner."""
    ops, drains, gate = 100, [], threading.Event()

    def counted(worker: worker_module.Worker) -> bool:
        drains.append(worker)
        return drain_loop.drain(worker)

    monkeypatch.setattr(worker_module, "drain", counted)
    for size in (1, 2):
        with engine_of(workers=size) as engine:
            engine._compute.spread = 1000 * ops
            variables = [cs.Var() for _ in range(size)]
            for variable in variables:
                engine.push(held_by(gate), writes=variable)
            left = [engine.push(lambda: None) for _ in range(ops)]
            drains.clear()
            gate.set()
            for op in left:
                op.wait(PATIENCE_S)
            # The waits plan at most the last few ops.
            assert len(drains) <= 2 * size + 2 * ops // (drain_loop.SHARE * size)
        gate.clear()


def test_who_finds_another_one_planning_does_not_nap_where_something_is_ready(monkeypatch):
    napped = []
    monkeypatch.setattr(drain_loop, "time", SimpleNamespace(sleep=napped.append))
    monkeypatch.setattr(drain_loop, "LOOKS", 3)
    assert drain_loop._comes_on([(0, 1)])
    assert not napped
    assert not drain_loop._comes_on([])
    assert napped == [drain_loop.NAP_S]


def test_short_ops_go_back_to_leaving_no_trace(engine):
    """Once enough short ops in a row follow long ones, no op gets a record any more."""
    pool = engine._compute
    # This is the state after a burst of long ops.
    pool.spread = state_transitions.SPREAD
    variable = cs.Var()
    for _ in range(1000 * state_transitions.SPREAD):
        engine.push(lambda: None, writes=variable)
        engine.waitall()
        if pool.spread == 0:
            break
    assert pool.spread == 0


def test_ops_are_counted_exactly_at_once_planned_or_failed(engine):
    for count in (1, 10, 100):
        before = engine.statistics()
        variable = cs.Var()
        for number in range(count):
            engine.push(lambda number=number: 1 / (number % 3), writes=variable)
        with pytest.raises(cs.OpError):
            engine.waitall()
        engine.clear_errors()
        threads_of_a_burst(engine, b"", 60)
        after = engine.statistics()
        failed = len(range(0, count, 3))
        assert after.host_ops - before.host_ops == count - failed + 60
        assert after.failed_ops - before.failed_ops == failed
