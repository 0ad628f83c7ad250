"""A launch with a closed, freed or lost part is refused by name; a pushed launch runs."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync.graph.parts import completion_variables, host_parallelism
from cudasync.testing import HostLatch


@pytest.fixture(autouse=True)
def engine():
    with cs.Engine(workers=2) as engine, cs.use(engine):
        yield engine


def one_more(x):
    with cs.graph() as g:
        x += 1
    return g.instantiate()


def test_a_launch_that_was_pushed_runs_though_its_executable_is_closed_before_it_is_issued(engine):
    x = cs.array([7])
    executable = one_more(x)
    with HostLatch() as held:
        engine.push(held.wait, writes=x)
        op = executable.launch()
        executable.close()
        executable.close()
        with pytest.raises(cs.ClosedError, match="instantiate"):
            executable.launch()
        held.release()
        op.wait()
    assert x.numpy() == [8]


def test_what_is_closed_is_destroyed_with_the_last_launch():
    x = cs.array([7])
    with counted_calls() as calls:
        executable = one_more(x)
        executable.launch().wait()
        executable.close()
        # A later use of the driver destroys executables without a user.
        one_more(x)
        assert calls["cuGraphExecDestroy"] == 1


BUFFERS = {
    "push": lambda work, x, view: cs.engine().push(work, x, view, device=0, name="work"),
    "push_many": lambda work, x, view: cs.engine().push_many([(work, x, view, 0)], name="work"),
}


@pytest.mark.parametrize("push", BUFFERS)
def test_memory_that_its_owner_freed_is_not_used(push, engine):
    buffer, x = cs.DeviceBuffer(32), cs.zeros(8, np.float32)
    view = buffer.view(8, np.float32)

    def work(stream):
        cs.memcpy_async(view, x, stream=stream)

    with cs.graph() as g:
        cs.engine().push(lambda: None, writes=x)
        BUFFERS[push](work, x, view)
    executable = g.instantiate()
    executable.launch().wait()
    buffer.close()
    before = engine.statistics()
    for stream in (None, cs.Stream()):
        with pytest.raises(cs.ClosedError, match=r"\(work.*test_gone.py.*of 32 bytes"):
            executable.launch(stream)
    assert engine.statistics() == before


def test_a_graph_goes_with_the_reset_of_its_device(engine):
    x, seen = cs.array([7]), cs.Var("seen")
    with cs.graph() as g:
        cs.engine().push(lambda: None, writes=seen)
        cs.engine().push(lambda stream: None, reads=seen, writes=x, device=0)
    mixed, simple = g.instantiate(), one_more(x)
    mixed.launch()
    simple.launch()
    cs.waitall()
    x.device.reset()
    for executable in (simple, mixed):
        with pytest.raises(cs.ClosedError, match="a reset of its device destroyed"):
            executable.launch()
        with pytest.raises(cs.ClosedError, match="a reset of its device destroyed"):
            executable.launch(cs.Stream())
        executable.close()
    # No failing op was pushed.
    seen.wait()
    engine.waitall()
    assert (cs.array([1]) + 1).numpy() == [2]


def test_an_op_of_a_launch_is_over_when_all_is_though_some_of_it_writes_nothing():
    a, y = cs.Var("a"), cs.array([7])
    with HostLatch() as held:
        with cs.graph() as g:
            cs.engine().push(held.wait, reads=a)
            y += 1
        op = g.instantiate().launch()
        assert y.numpy() == [8]
        with pytest.raises(TimeoutError):
            op.wait(0)
        held.release()
        op.wait()


def test_so_it_is_where_host_functions_are_spread(monkeypatch):
    monkeypatch.setattr(host_parallelism, "LONG_S", 0.0)
    gate, ran, is_red = threading.Event(), [], []

    def waits():
        if is_red:
            assert gate.wait(60)
            raise ValueError("red")

    with cs.graph() as g:
        cs.engine().push(waits)
        cs.engine().push(lambda: ran.append(1))
    executable = g.instantiate()
    for _ in range(2):
        executable.launch().wait()
    assert executable.parts[0].is_spread
    is_red.append(1)
    op = executable.launch()
    with pytest.raises(TimeoutError):
        op.wait(0)
    gate.set()
    with pytest.raises(cs.OpError, match="red"):
        op.wait()
    cs.engine().clear_errors()
    is_red.clear()
    # A failed launch may succeed later.
    executable.launch().wait()
    assert len(ran) == 4


def test_a_failure_of_what_writes_nothing_is_the_launchs():
    x, y, is_red = cs.Var("x"), cs.array([7]), [1]
    with cs.graph() as g:
        cs.engine().push(lambda: 1 // (not is_red), name="divide")
        cs.engine().push(lambda: None, writes=x)
        y += 1
    executable = g.instantiate()
    with pytest.raises(cs.OpError, match="divide"):
        executable.launch().wait()
    assert y.numpy() == [8]
    x.wait()
    is_red.clear()
    executable.launch().wait()
    cs.engine().clear_errors()


def test_a_launch_without_these_variables_is_found(monkeypatch):
    monkeypatch.setattr(completion_variables, "is_silent", lambda accesses: False)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_an_op_of_a_launch_is_over_when_all_is_though_some_of_it_writes_nothing()
