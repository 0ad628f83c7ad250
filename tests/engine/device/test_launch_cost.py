"""A launch among host ops costs at most twice the bytecodes of ours that it costs alone.

A launch plans the entries before it in the log. This costs as much as the push of a host op, and
may come on top. The launch must not leave the quick way.
"""

from __future__ import annotations

import threading
import time
from statistics import median

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer, is_library
from helpers.engine_programs.runner import kernels

import cudasync as cs
from cudasync.engine.host import state_transitions
from cudasync.engine.log.combiner import COMBINER, Combiner

pytestmark = pytest.mark.usefixtures("tracing_ends")

ROUNDS = 9
N = 8


@pytest.fixture
def engine():
    with cs.Engine(workers=1) as engine:
        yield engine


@pytest.fixture
def launch(engine):
    """A launch whose histories are known and whose events exist."""
    one, n = np.int32(1), np.uint32(N)
    x = cs.zeros(N, np.int32)
    launch = kernels(cs.Device(0))["mix"].prepare(grid=1, block=32, args=(x, x, one, n, one, one))
    for _ in range(3):
        launch.push()
    cs.waitall(PATIENCE_S)
    return launch


def cost(launch, before):
    """The bytecodes of a push after `before()`."""
    found = []
    for _ in range(ROUNDS):
        before()
        freezer = Freezer(None, is_library)
        with freezer:
            op = launch.push()
        op.wait(PATIENCE_S)
        found.append(freezer.points)
    return median(found)


def nothing() -> None:
    pass


def alone(launch):
    return cost(launch, nothing)


def behind_one_that_has_run(engine, launch):
    def run_one():
        # A wait for the op might plan it on this thread.
        has_run = threading.Event()
        engine.push(has_run.set)
        assert has_run.wait(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while COMBINER.unplanned:
            assert time.monotonic() < deadline, "the worker does not come to the end of the log"

    return cost(launch, run_one)


def behind_one_that_is_queued(engine, launch):
    gate, is_running = threading.Event(), threading.Event()

    def long():
        is_running.set()
        gate.wait(PATIENCE_S)

    engine.push(long)
    assert is_running.wait(PATIENCE_S)
    # The launch takes the log over from a worker inside an entry, so states are copied.
    launch.push().wait(PATIENCE_S)
    try:
        return cost(launch, lambda: engine.push(nothing))
    finally:
        gate.set()


def behind_one_that_no_worker_is_free_for(engine, launch):
    """Since the last launch the worker has planned a long op and begun to run it."""
    gates: list[threading.Event] = []

    def occupy():
        for gate in gates:
            gate.set()
        gate, is_running = threading.Event(), threading.Event()
        gates.append(gate)

        def long():
            is_running.set()
            gate.wait(PATIENCE_S)

        engine._compute.spread = state_transitions.SPREAD
        engine.push(long)
        assert is_running.wait(PATIENCE_S)
        engine.push(nothing)

    try:
        return cost(launch, occupy)
    finally:
        gates[-1].set()


AMONG = [
    behind_one_that_has_run,
    behind_one_that_is_queued,
    behind_one_that_no_worker_is_free_for,
]


@pytest.mark.parametrize("among", AMONG)
def test_a_launch_among_host_ops_costs_at_most_twice_what_it_does_alone(engine, launch, among):
    assert among(engine, launch) <= 2 * alone(launch)


@pytest.mark.parametrize("among", AMONG)
def test_a_launch_that_leaves_the_quick_way_among_host_ops_is_found(
    engine, launch, among, monkeypatch
):
    usual = alone(launch)
    monkeypatch.setattr(Combiner, "reach", lambda self, op: (None, 0))
    assert among(engine, launch) > 2 * usual
