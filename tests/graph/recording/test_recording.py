"""Recording: what it does, what it refuses, and what becomes of the recorded graph."""

from __future__ import annotations

import pickle
import threading
from time import perf_counter

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync import xp
from cudasync.graph.parts import host_parallelism


@pytest.fixture
def x():
    return cs.array(np.arange(8, dtype=np.float32))


def test_nothing_runs_before_a_launch_and_each_launch_runs_all(x):
    with cs.graph() as g:
        x += 1
    assert x.numpy().tolist() == list(range(8))
    with g.instantiate() as executable:
        for _ in range(3):
            executable.launch()
    assert x.numpy().tolist() == [i + 3 for i in range(8)]


def test_operators_on_the_cpu_are_recorded_as_those_of_a_device_are():
    x = xp.asarray([1.0, 2.0, 3.0], device="cpu")
    with cs.graph() as g:
        y = x + 1
        y *= xp.sum(x)
    assert [node.kind.value for node in g.nodes] == ["host"] * len(g.nodes)
    with g.instantiate() as executable:
        executable.launch()
    assert y.numpy().tolist() == [12.0, 18.0, 24.0]


def test_what_is_made_inside_belongs_to_the_graph_and_holds_its_value_after_a_launch(x):
    with cs.graph() as g:
        y = x * 2
        total = xp.sum(y + 1)
    del y
    executable = g.instantiate()
    executable.launch()
    # Eager work gets other memory, although the recording's temporaries are gone.
    noise = [x * 100 for _ in range(8)]
    assert float(total) == 2 * 28 + 8
    x += 1
    executable.launch()
    assert float(total) == 2 * 36 + 8
    assert noise[0].numpy().tolist() == [100.0 * i for i in range(8)]


QUESTIONS = {
    "numpy": lambda x: x.numpy(),
    "float": lambda x: float(x[0]),
    "wait": lambda x: x.wait(),
    "waitall": lambda x: cs.waitall(),
    "print": lambda x: str(x),
    "result": lambda x: cs.engine().push(lambda: 1, writes=x).result(),
    "statistics": lambda x: cs.engine().statistics(),
    "trace": lambda x: cs.engine().trace(),
    "close": lambda x: cs.engine().close(),
    "errors": lambda x: cs.engine().clear_errors(),
    "callback": lambda x: cs.engine().push(lambda: 1).add_done_callback(print),
    "done": lambda x: cs.engine().push(lambda: 1).done(),
    "variable": lambda x: cs.Var("v").wait(),
    "mask": lambda x: x[x > 1],
    "bool": lambda x: bool(x[0]),
    "pickle": lambda x: pickle.dumps(x),
    "NumPy": lambda x: np.asarray(x),
    "NumPy's array": lambda x: x.numpy(out=np.zeros(8, np.float32)),
    "on the CPU": lambda x: float(xp.ones(1, device="cpu")),
    "hand over": lambda x: cs.hand_over(x, to=cs.Stream()),
    "take over": lambda x: cs.take_over(x, after=cs.Stream()),
    "interface": lambda x: x.__cuda_array_interface__,
    "DLPack": lambda x: x.__dlpack__(),
    "measure": lambda x: MADE.measure(),
    "launch on a stream": lambda x: MADE.launch(cs.Stream()),
}
with cs.graph() as EMPTY:
    pass
MADE = EMPTY.instantiate()


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_asks_for_a_value_is_refused_at_once_and_the_graph_is_not_whole(x, question):
    g = cs.graph()
    with pytest.raises(cs.RecordingError, match=r"test_recording.py:\d+: .*recorded"), g:
        QUESTIONS[question](x)
    with pytest.raises(cs.RecordingError, match="record it again"):
        g.instantiate()
    # The outer engine is current again.
    assert (x + 1).numpy().tolist() == [i + 1 for i in range(8)]


def test_misuse_is_said_so(x):
    g = cs.graph()
    with g:
        with pytest.raises(cs.RecordingError, match="leave its `with` block"):
            g.instantiate()
        with pytest.raises(cs.RecordingError, match="leave its `with` block"):
            g.launch()
        with pytest.raises(ValueError, match="no worker pool"):
            cs.engine().push(print, pool="none")
        with pytest.raises(TypeError, match="needs a function"):
            cs.engine().push(3)
        inside = cs.engine()
    with pytest.raises(cs.RecordingError, match="once"), g:
        pass
    with pytest.raises(cs.RecordingError, match="recording has ended"):
        inside.push(print)
    executable = g.instantiate()
    assert executable.launch().result() is None
    executable.close()
    executable.close()
    with pytest.raises(cs.ClosedError, match="instantiate"):
        executable.launch()


def test_kernels_between_host_ops_are_one_launch_of_the_driver(x):
    seen = []
    with cs.graph() as g:
        for _ in range(20):
            x += 1
        cs.engine().push(lambda: seen.append(1), reads=x)
        for _ in range(5):
            x *= 1
    assert len(g) == len(g.nodes) == 26
    executable = g.instantiate()
    assert "3 (2 device, 1 host)" in executable.report()
    executable.launch()
    cs.waitall()
    with counted_calls() as calls:
        executable.launch()
        cs.waitall()
    assert calls["cuGraphLaunch"] == 2
    assert calls["cuLaunchKernel"] == 0
    assert seen == [1, 1]


def test_a_failure_names_the_node_and_what_does_not_come_after_it_runs():
    a, b, ran = cs.Var("a"), cs.Var("b"), []
    with cs.Engine() as engine:
        with cs.graph() as g:
            push = cs.engine().push
            push(lambda: 1 / 0, writes=a, name="divide")
            push(lambda: ran.append("after"), reads=a)
            push(lambda: ran.append("beside"), writes=b)
        op = g.instantiate().launch()
        with pytest.raises(cs.OpError, match=r"node 0 \(divide\), recorded at .*test_recording"):
            op.wait()
        assert ran == ["beside"]
        with pytest.raises(cs.OpError):
            a.wait()
        engine.clear_errors()


def test_a_function_of_a_stream_that_raises_is_told_of_at_instantiation(x):
    def fails(stream):
        raise ValueError("no")

    with cs.graph() as g:
        cs.engine().push(fails, writes=x, device=0)
    with pytest.raises(ValueError, match="no"):
        g.instantiate()
    assert (x + 1).numpy()[0] == 1


def test_a_graph_is_shown(x):
    with cs.graph() as g:
        y = x + 1
        z = x * 2
        cs.engine().push(lambda: None, reads=[y, z], name='say "hello"')
    dot = g.to_dot()
    assert dot.startswith("digraph")
    assert "n0 -> n2;" in dot
    assert "n1 -> n2;" in dot
    assert "n0 -> n1;" not in dot
    assert r"say \"hello\"" in dot
    assert "n0 --> n2" in g.to_mermaid()
    assert [node.dependencies for node in g.nodes[:2]] == [(), ()]
    assert g.nodes[2].dependencies == g.nodes[:2]
    assert "test_recording.py:" in g.nodes[0].push_site
    assert {each.reads for each in g.nodes[2].accesses} == {True}


def test_functions_that_take_long_are_spread_over_workers_and_fail_as_eagerly(monkeypatch):
    monkeypatch.setattr(host_parallelism, "LONG_S", 0.0)
    a, b, ran = cs.Var("a"), cs.Var("b"), []
    gate, is_red = threading.Barrier(2), []

    def meets():
        if is_red:
            gate.wait(60)
        ran.append(1)

    def may_fail():
        if is_red:
            raise ValueError("red")

    with cs.Engine(workers=2) as engine:
        with cs.graph() as g:
            push = cs.engine().push
            push(meets, writes=a)
            push(meets, writes=b)
            push(may_fail, writes=a, name="may fail")
        executable = g.instantiate()
        for _ in range(2):
            executable.launch().wait()
        assert "spread" in executable.report()
        # The two functions meet, so each has a worker.
        is_red.append(1)
        with pytest.raises(cs.OpError, match="red"):
            executable.launch().wait()
        b.wait()
        assert len(ran) == 6
        engine.clear_errors()


def test_what_was_found_to_take_long_is_spread_from_then_on():
    """A launch in flight that takes no time must not teach otherwise.

    Its op would end with the last function alone, the function of another launch that is being
    pushed.
    """
    x, y, begun = cs.Var("x"), cs.Var("y"), threading.Semaphore(0)
    gates = [threading.Event() for _ in range(2)]
    shut = list(gates)

    def takes_long():
        if shut:
            gate = shut.pop(0)
            begun.release()
            assert gate.wait(60)

    with cs.Engine(workers=1):
        with cs.graph() as g:
            cs.engine().push(takes_long, writes=x)
            cs.engine().push(int, writes=y)
        executable = g.instantiate()
        (part,) = executable.parts
        ops = [executable.launch() for _ in range(3)]
        for op, gate in zip(ops, gates, strict=False):
            assert begun.acquire(timeout=60)
            since = perf_counter()
            while perf_counter() - since < 4 * host_parallelism.LONG_S:
                assert not op.finished
            gate.set()
        cs.waitall()
        assert part.is_spread
