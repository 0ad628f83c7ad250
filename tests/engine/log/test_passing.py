"""An op on byte ranges passes plain ops in the log, and no other ops."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of, held_by

import cudasync as cs
from cudasync.engine.log import combiner, passing
from cudasync.engine.log.combiner import COMBINER


@pytest.fixture
def engine():
    with engine_of(workers=1) as engine:
        yield engine


@pytest.fixture
def array():
    return cs.zeros(4, np.int32)


@pytest.fixture
def gate(engine, array):
    """While it is closed, no worker is free, and the log has no unplanned entry."""
    gate, begun = threading.Event(), threading.Event()
    array.wait(PATIENCE_S)
    engine.push(held_by(gate, begun))
    assert begun.wait(PATIENCE_S)
    COMBINER.plan()
    yield gate
    gate.set()


def fill(array, value):
    """A device op that overwrites the array."""
    return cs.copy(array, np.full(4, value, np.int32))


def launched(engine, array, **more):
    """A device op that does nothing with the array."""
    return engine.push(lambda stream: None, writes=[array], device=cs.Device(0), **more)


@pytest.mark.usefixtures("gate")
def test_a_launch_leaves_a_plain_op_to_the_workers(engine, array):
    passed = engine.push(int)
    launch = launched(engine, array)
    # Both before this thread waits: a waiter plans.
    assert (passed.number, launch._before) == (0, ())
    assert COMBINER.unplanned == 2


def test_what_was_passed_runs_in_the_order_of_the_log(engine, array, gate):
    ran: list[int] = []
    for each in range(20):
        engine.push(lambda each=each: ran.append(each))
        launched(engine, array)
    gate.set()
    engine.waitall(PATIENCE_S)
    assert ran == list(range(20))
    assert engine.statistics().host_ops == 21


@pytest.mark.usefixtures("gate")
def test_a_short_op_on_the_cpu_passes_plain_ops_too(engine):
    x = cs.array(np.arange(3), device="cpu")
    passed = engine.push(int)
    for _ in range(10):
        x = x + 1
    assert x.numpy().tolist() == [10, 11, 12]
    assert not passed.done()


def test_an_op_that_names_a_variable_comes_after_its_writer(engine, array, gate):
    var = cs.Var("v")
    engine.push(int, writes=[var])
    behind = launched(engine, array, reads=[var])
    assert not behind.done()
    assert behind.number
    gate.set()
    behind.wait(PATIENCE_S)


def reads_what_a_host_op_wrote(engine, array, gate):
    """True if an op on an array comes after a host op that writes the array."""
    order: list[str] = []
    engine.push(int)
    engine.push(lambda: order.append("host"), writes=[array])
    behind = engine.push(lambda stream: order.append("device"), reads=[array], device=cs.Device(0))
    COMBINER.plan()
    gate.set()
    behind.wait(PATIENCE_S)
    return order == ["host", "device"]


def test_a_host_op_on_bytes_is_not_passed(engine, array, gate):
    assert reads_what_a_host_op_wrote(engine, array, gate)


def test_passing_an_op_on_the_same_bytes_is_found(engine, array, gate, monkeypatch):
    """The planted bug: every op can be passed."""

    def index_of(op, epoch):
        entries = epoch.segment.entries
        return entries.index(op) if op in entries else -1

    monkeypatch.setattr(combiner, "index_of", index_of)
    assert not reads_what_a_host_op_wrote(engine, array, gate)


@pytest.mark.usefixtures("gate")
def test_launches_past_one_op_keep_a_bounded_part_of_the_log(engine, array):
    engine.push(int)
    for _ in range(2 * passing.MOST + 10):
        launched(engine, array)
        assert COMBINER.unplanned <= passing.MOST + 1


@pytest.mark.usefixtures("gate")
def test_a_thread_that_takes_over_inside_a_launch_keeps_its_history(engine, array):
    """A finaliser or signal handler pushes on the same thread, within the launch."""
    found: list[cs.Op] = []

    def enqueue(stream: cs.Stream) -> None:
        if not found:
            found.append(engine.push(int))
            found.append(launched(engine, array))

    engine.push(int)
    first = engine.push(enqueue, writes=[array], device=cs.Device(0))
    last = launched(engine, array)
    last.wait(PATIENCE_S)
    assert first.finished
    assert found[1].finished
