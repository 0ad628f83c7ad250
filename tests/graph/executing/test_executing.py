"""A launch is a pushed op: it is ordered with ops on the same data, and with no other op."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync.engine import current
from cudasync.testing import HostLatch

PATIENCE_S = 20.0


def recorded(*steps):
    """A graph of these functions, each with the data that it writes."""
    with cs.graph() as g:
        for fn, writes in steps:
            cs.engine().push(fn, writes=writes)
    return g.instantiate()


@pytest.mark.parametrize("on_device_too", [False, True])
def test_a_launch_returns_before_anything_of_it_has_run(on_device_too):
    latch, x = HostLatch(), cs.zeros(4, np.int32)
    with cs.graph() as g:
        cs.engine().push(latch.wait, writes=x)
        if on_device_too:
            x += 1
    op = g.instantiate().launch()
    assert isinstance(op, cs.Op)
    assert not op.done()
    latch.release()
    op.wait(PATIENCE_S)
    assert op.done()


def test_two_launches_in_flight_are_one_after_the_other():
    latch, calls, value = HostLatch(), [], cs.Var("value")
    with cs.Engine(workers=2):
        exe = recorded(
            (lambda: (calls.append("a"), latch.wait()), value), (lambda: calls.append("b"), value)
        )
        ops = [exe.launch() for _ in range(2)]
        latch.release()
        for op in ops:
            op.wait(PATIENCE_S)
    assert calls == ["a", "b"] * 2


def test_two_executables_run_side_by_side_on_workers():
    begun = [threading.Event() for _ in range(2)]
    met = []

    def meets(mine):
        begun[mine].set()
        met.append(begun[1 - mine].wait(PATIENCE_S))

    with cs.Engine(workers=2) as engine:
        made = [recorded((lambda mine=mine: meets(mine), cs.Var())) for mine in range(2)]
        for exe in made:
            exe.launch()
        engine.waitall(PATIENCE_S)
    assert met == [True, True]


def test_two_executables_run_side_by_side_on_a_device(latch):
    """One executable is blocked, and the other finishes."""
    x, y = cs.zeros(4, np.int32), cs.zeros(4, np.int32)
    made = []
    for each in (x, y):
        with cs.graph() as g:
            each += 1
        made.append(g.instantiate())
    gate = cs.Stream(0)
    latch.hold(gate)
    cs.take_over(x, after=gate)
    held, free = made[0].launch(), made[1].launch()
    free.wait(PATIENCE_S)
    assert not held.done()
    latch.release()
    held.wait(PATIENCE_S)
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([1] * 4, [1] * 4)


def test_functions_run_on_workers_and_never_on_the_drivers_thread():
    x, workers = cs.zeros(4, np.int32), []
    with cs.graph() as g:
        x += 1
        cs.engine().push(lambda: workers.append(current.worker()), reads=x, writes=x)
        x += 1
    with g.instantiate() as exe, counted_calls() as calls:
        for _ in range(3):
            exe.launch()
        cs.waitall()
    assert len(workers) == 3
    assert all(worker is not None for worker in workers)
    assert calls["cuGraphLaunch"] == 6
    called = [name for name, count in calls.items() if count]
    assert not [name for name in called if "HostFunc" in name or "Callback" in name]


def test_a_launch_is_an_op_for_each_segment_whatever_the_number_of_nodes():
    arrays = [cs.zeros(4, np.int32) for _ in range(8)]
    with cs.graph() as g:
        for _ in range(20):
            for each in arrays:
                each += 1
        for each in arrays:
            cs.engine().push(lambda: None, reads=each, writes=each)
    with cs.Engine() as engine, g.instantiate(without=("fusion",)) as exe:
        exe.launch().wait(PATIENCE_S)
        before = engine.statistics()
        exe.launch().wait(PATIENCE_S)
        after = engine.statistics()
        assert len(exe.parts) == 2
        assert after.host_ops - before.host_ops == 1
        assert after.device_ops - before.device_ops == 1
