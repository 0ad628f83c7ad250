"""Graphs within a graph: a launch inside a recording becomes one node."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from helpers.engine_programs.steps import Setting
from helpers.engine_programs.strategies import programs, settings
from helpers.graphs.recorded_programs import graph_differences, recordable
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

import cudasync as cs
from cudasync.graph import binding, child_graphs

# Runs of so many pushes. The flags: a child graph, instantiated first, a child of a child.
runs = st.lists(
    st.tuples(st.integers(0, 8), st.tuples(st.booleans(), st.booleans(), st.booleans())),
    min_size=1,
    max_size=4,
)
some_programs = programs(max_steps=20, ordered=True).map(recordable)


@given(some_programs, settings(), runs, st.booleans())
def test_children_do_what_their_pushes_do_failures_too(program, setting, parts, beside):
    assert not graph_differences(program, setting, 2, beside=beside, children=parts)


def _backwards(nodes):
    """The planted bug: children come before earlier nodes."""
    return EXPANDED(sorted(nodes, key=lambda node: node.control is None))


EXPANDED = child_graphs.expanded


def test_a_planted_bug_is_found(monkeypatch):
    monkeypatch.setattr(binding, "expanded", _backwards)

    @hypothesis_settings(
        max_examples=100, derandomize=True, database=None, deadline=None, phases=[Phase.generate]
    )
    @given(some_programs, runs)
    def search(program, parts):
        assert not graph_differences(program, Setting(), 2, beside=True, children=parts)

    with pytest.raises((AssertionError, Flaky)):
        search()


@pytest.fixture
def x():
    return cs.array(np.arange(4, dtype=np.int32))


def test_a_launch_inside_of_a_recording_is_one_node_of_it(x):
    with cs.graph() as inner:
        x += 1
        x *= 2
    step = inner.instantiate()
    with cs.graph() as outer:
        step.launch()
        x *= 2
        with cs.graph() as another:
            x += 1
        node = another.launch()
        with pytest.raises(cs.RecordingError, match="has not run"):
            node.wait()
    assert [node.name for node in outer.nodes] == ["graph of 2", "multiply", "graph of 1"]
    assert [node.dependencies for node in outer.nodes] == [
        (),
        outer.nodes[:1],
        outer.nodes[1:2],
    ]
    assert "test_child_graphs.py:" in outer.nodes[0].push_site
    assert outer.to_dot().count("subgraph cluster_n") == 2
    assert "n0_0_1" in outer.to_mermaid()
    executable = outer.instantiate()
    # The step may be closed: the outer graph keeps its parts.
    step.close()
    executable.launch()
    cs.waitall()
    with counted_calls() as calls:
        executable.launch()
        cs.waitall()
    assert calls["cuGraphLaunch"] == 1
    expected = np.arange(4)
    for _ in range(2):
        expected = 2 * 2 * (expected + 1) + 1
    assert x.numpy().tolist() == expected.tolist()


def test_what_is_recorded_inside_and_not_launched_is_no_part_of_the_outer_graph(x):
    with cs.graph() as outer:
        x += 1
        with cs.graph() as inner:
            y = x * 10
        broken = cs.graph()
        with pytest.raises(TypeError), broken:
            x += "not a number"
        with pytest.raises(cs.RecordingError, match="record it again"):
            broken.launch()
    assert [node.name for node in outer.nodes] == ["add"]
    with pytest.raises(cs.RecordingError, match="instantiate"):
        inner.launch()
    outer.instantiate().launch()
    inner.instantiate().launch()
    assert y.numpy().tolist() == [10, 20, 30, 40]


@pytest.mark.usefixtures("rounds_stay")
def test_a_child_in_a_block_is_done_each_time(x):
    flag = cs.array(np.array([1], np.int32), device="cpu")
    seen = []
    with cs.graph() as inner:
        x += 1
        cs.engine().push(lambda: seen.append(1), reads=x)
    with cs.graph() as g:
        with g.repeat(3):
            inner.launch()
        with g.cond(flag):
            inner.instantiate().launch()
    g.instantiate().launch()
    assert x.numpy().tolist() == [4, 5, 6, 7]
    assert len(seen) == 4


def test_a_child_has_the_arguments_of_its_launch_and_of_the_outer_graph(x):
    def copies(stream):
        cs.memcpy_async(target[1:], target[:1], size_bytes=4, stream=stream)

    a, b, c = (cs.zeros(4, np.int32) for _ in range(3))
    with cs.graph() as inner:
        target = inner.argument("target", a)
        target += x
        # An array that a function refers to is copied in and out.
        cs.engine().push(copies, writes=target, device=0)
    with cs.graph() as outer:
        of = outer.argument("of", b)
        inner.launch()
        step = inner.instantiate()
        step.update(target=of)
        step.launch()
    executable = outer.instantiate()
    executable.launch()
    executable.update(of=c)
    executable.launch()
    assert a.numpy().tolist() == [0, 0, 4, 6]
    assert b.numpy().tolist() == c.numpy().tolist() == [0, 0, 2, 3]


def test_operations_of_a_child_are_fused_with_those_around_it(x):
    with cs.graph() as outer:
        y = x * 2
        with cs.graph() as inner:
            z = y + 1
        inner.launch()
        del y
    executable = outer.instantiate()
    assert len(executable.nodes) == 1
    assert len(outer.instantiate(without=("fusion",)).nodes) == 2
    executable.launch()
    assert z.numpy().tolist() == [1, 3, 5, 7]


def test_a_failure_in_a_child_names_its_node():
    a = cs.Var("a")
    with cs.Engine() as engine:
        with cs.graph() as outer:
            with cs.graph() as inner:
                cs.engine().push(lambda: 1 / 0, writes=a, name="divide")
            inner.launch()
        with pytest.raises(cs.OpError, match=r"node 0 \(divide\), recorded at .*test_child_graphs"):
            outer.instantiate().launch().wait()
        engine.clear_errors()


@pytest.mark.usefixtures("rounds_stay")
def test_an_executable_is_recorded_as_its_graph_was_and_passes_are_the_outer_ones(x):
    with cs.graph() as inner:
        argument = inner.argument("x", x)
        y = argument * 2
        z = y + 1
        with inner.repeat(2):
            argument += 1
    del y
    step = inner.instantiate()
    assert len(step.nodes) == 2
    with cs.graph() as outer:
        step.launch()
    left_out = outer.instantiate(without=("fusion", "conditionals"))
    assert len(left_out.nodes) == 3
    assert "1 block" in left_out.report()
    left_out.launch()
    outer.instantiate().launch()
    assert x.numpy().tolist() == [4, 5, 6, 7]
    assert z.numpy().tolist() == [5, 7, 9, 11]
    step.close()
    with pytest.raises(cs.ClosedError), cs.graph():
        step.launch()


def test_only_the_op_that_cannot_be_captured_is_left_to_the_engine(x):
    y = cs.zeros(4, np.int32)
    buffer = cs.DeviceBuffer(16)
    by_hand = cs.Graph()
    by_hand.add_fill(buffer.view(4, np.int32), np.int32(3))
    executable = by_hand.instantiate()
    calls = []

    def captured(stream):
        calls.append("captured")
        cs.memset_async(y, np.int32(1), stream=stream)

    def waits(stream):
        calls.append("waits")
        executable.launch(stream)
        cs.memcpy_async(y, buffer, stream=stream)
        stream.synchronize()

    with cs.graph() as g:
        cs.engine().push(captured, writes=y, device=0)
        x += y
        with g.repeat(2):
            cs.engine().push(waits, writes=y, device=0, name="waits")
            x *= 2
        x += y
    ready = g.instantiate()
    calls.clear()
    for _ in range(2):
        ready.launch().wait()
    assert calls == ["waits"] * 4
    expected = np.arange(4)
    for _ in range(2):
        expected = 4 * (expected + 1) + 3
    assert x.numpy().tolist() == expected.tolist()


def test_an_executable_of_the_driver_is_a_part_of_the_graph_by_way_of_an_op():
    buffer = cs.DeviceBuffer(16)
    words = buffer.view(4, np.int32)
    by_hand = cs.Graph()
    by_hand.add_fill(words, np.int32(7))
    executable = by_hand.instantiate()
    clear = lambda stream: cs.memset_async(buffer, 0, stream=stream)  # noqa: E731
    with cs.graph() as g:
        cs.engine().push(executable.launch, writes=words, device=0, name="by hand")
    ready = g.instantiate()
    # Drivers capture no launch of an executable.
    assert "cannot capture by hand, so the engine does it" in ready.report()
    found = np.empty(4, np.int32)
    for is_launched in (False, True, True):
        cs.engine().push(clear, writes=words, device=0)
        if is_launched:
            ready.launch()
        cs.waitall()
        cs.memcpy_async(found, buffer)
        cs.Device(0).synchronize()
        assert found.tolist() == [7 * is_launched] * 4


@pytest.mark.usefixtures("rounds_stay")
def test_an_executable_with_a_block_is_recorded_with_the_block_left_to_the_outer_passes(x):
    with cs.graph() as inner, inner.repeat(200):
        x += 1
    step = inner.instantiate()
    assert "1 of 1 blocks" in step.report()
    for without, said in ((), "1 of 1 blocks"), (("conditionals",), "conditionals: left out"):
        with cs.graph() as outer:
            step.launch()
        executable = outer.instantiate(without=without)
        assert said in executable.report()
        assert [node.device is None for node in executable.nodes] == [bool(without)]
        executable.launch()
    assert x.numpy().tolist() == [400, 401, 402, 403]
