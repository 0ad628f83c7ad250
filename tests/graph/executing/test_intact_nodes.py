"""A device segment behind a failure runs the nodes that need no failed data."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.engine_programs.host_programs import failing_programs
from helpers.engine_programs.strategies import settings
from helpers.fuzzing.search import first_difference
from helpers.graphs.recorded_programs import graph_differences
from hypothesis import given

import cudasync as cs
from cudasync.graph.parts import intact
from cudasync.graph.parts.intact import IntactGraphs


@given(failing_programs(), settings())
def test_poison_on_devices_is_that_of_eager_work(program, setting):
    assert not graph_differences(program, setting, 2, beside=True, devices_too=True)


def everything(self, damage):
    """A planted bug: nodes that need failed data run, too."""
    return LEFT_OUT(self, type(damage)())


def nothing(self, damage):
    """A planted bug: no node runs."""
    for node in self._nodes:
        damage.fail(node.hazards)
    return frozenset(range(len(self._steps)))


LEFT_OUT = IntactGraphs._left_out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bug", [everything, nothing])
def test_a_planted_bug_is_found(bug, monkeypatch):
    monkeypatch.setattr(IntactGraphs, "_left_out", bug)

    def differences(program, setting):
        return graph_differences(program, setting, 2, beside=True, devices_too=True)

    assert first_difference(differences, failing_programs(), settings())


def fail():
    raise ValueError("planned")


def is_poisoned(array) -> bool:
    try:
        array.numpy()
    except cs.OpError:
        return True
    return False


@pytest.fixture(params=["async", "serial"])
def engine(request):
    with cs.Engine(*["serial"] * (request.param == "serial")) as engine, cs.use(engine):
        yield engine
        engine.clear_errors()


def test_what_a_failed_host_function_does_not_reach_runs(engine):
    a, b, c = (cs.zeros(16, np.int32) for _ in range(3))
    with cs.graph() as g:
        cs.engine().push(fail, writes=[a])
        lost = a + 1
        found = b + 2
        both = lost + found
        c[...] = found + 1
    executable = g.instantiate(without=("fusion", "dead"))
    for _ in range(2):
        op = executable.launch()
        assert [is_poisoned(each) for each in (a, lost, found, both, c)] == [1, 1, 0, 1, 0]
        assert (c.numpy() == 3).all()
        assert (found.numpy() == 2).all()
        assert isinstance(op.exception(), cs.OpError)
        engine.clear_errors()


def test_what_failed_before_the_launch_is_written_anew(engine):
    a, b = cs.zeros(16, np.int32), cs.zeros(16, np.int32)
    with cs.graph() as g:
        b += a
        a[...] = 5
        c = a + 1
    executable = g.instantiate()
    engine.push(fail, writes=[a])
    executable.launch()
    assert is_poisoned(b)
    assert (a.numpy() == 5).all()
    assert (c.numpy() == 6).all()


def test_a_segment_in_which_all_fails_launches_nothing(engine):
    a, b = cs.zeros(16, np.int32), cs.zeros(16, np.int32)
    with cs.graph() as g:
        b += a
        b += 1
    executable = g.instantiate(without=("fusion",))
    engine.push(fail, writes=[a])
    executable.launch()
    assert is_poisoned(b)
    engine.clear_errors()
    assert (b.numpy() == 0).all()


@pytest.mark.usefixtures("rounds_stay")
def test_a_round_of_the_engine_runs_what_is_intact(engine):
    a, b = cs.zeros(16, np.int32), cs.zeros(16, np.int32)
    with cs.graph() as g, g.repeat(3):
        a += 1
        b += 1
        # With a function of the host among the steps, the engine runs the rounds.
        cs.engine().push(int)
    executable = g.instantiate(without=("fusion",))
    engine.push(fail, writes=[a])
    executable.launch()
    assert is_poisoned(a)
    assert (b.numpy() == 3).all()


@pytest.mark.usefixtures("rounds_stay")
def test_a_block_of_the_driver_runs_if_it_is_intact(engine):
    a, b = cs.zeros(16, np.int32), cs.zeros(16, np.int32)
    with cs.graph() as g:
        with g.repeat(3):
            b += 1
        a += b
    executable = g.instantiate()
    engine.push(fail, writes=[a])
    executable.launch()
    assert is_poisoned(a)
    assert (b.numpy() == 3).all()


def test_a_device_function_is_captured_again_without_the_failed_nodes(engine):
    a, b = cs.zeros(16, np.int32), cs.zeros(16, np.int32)
    calls = []

    def clear(stream):
        calls.append(stream)
        cs.memset_async(b, 1, stream=stream)

    with cs.graph() as g:
        cs.engine().push(clear, writes=[b], device=0)
        a += 1
    executable = g.instantiate()
    assert len(calls) == 1
    for _ in range(3):
        engine.push(fail, writes=[a])
        executable.launch()
        assert is_poisoned(a)
        assert (b.numpy() == 0x01010101).all()
        engine.clear_errors()
    assert len(calls) == 2


def test_a_function_that_fails_when_it_is_captured_again_poisons_all(engine):
    a, b = cs.zeros(16, np.int32), cs.zeros(16, np.int32)
    calls = []

    def clear(stream):
        calls.append(stream)
        if len(calls) > 1:
            raise ValueError("once only")
        cs.memset_async(b, 1, stream=stream)

    with cs.graph() as g:
        cs.engine().push(clear, writes=[b], device=0)
        a += 1
    executable = g.instantiate()
    engine.push(fail, writes=[a])
    executable.launch()
    assert is_poisoned(a)
    assert is_poisoned(b)


def test_a_segment_without_writes_tells_of_the_node_that_did_not_run(engine):
    a = cs.zeros(16, np.int32)
    with cs.graph() as g:
        cs.engine().push(lambda stream: None, reads=[a], device=0)
    executable = g.instantiate()
    engine.push(fail, writes=[a])
    assert isinstance(executable.launch().exception(), cs.OpError)


def test_a_node_that_did_not_run_is_told_of_whatever_runs_behind_it(engine):
    """Neither writes anything that it declares."""
    a, b, aside = cs.zeros(16, np.int32), cs.zeros(16, np.int32), cs.DeviceBuffer(64)
    with cs.graph() as g:
        cs.engine().push(lambda stream: None, reads=[a], device=0)
        cs.engine().push(lambda s: cs.memset_async(aside, 1, stream=s), reads=[b], device=0)
    executable = g.instantiate()
    engine.push(fail, writes=[a])
    assert isinstance(executable.launch().exception(), cs.OpError)
    assert not is_poisoned(b)
    engine.clear_errors()


def test_data_that_a_later_node_overwrites_is_intact_again(engine):
    a, b = cs.zeros(16, np.int32), cs.zeros(16, np.int32)
    with cs.graph() as g:
        b += a
        b[...] = 5
    executable = g.instantiate(without=("dead", "fusion"))
    assert len(executable.nodes) == 2
    engine.push(fail, writes=[a])
    executable.launch()
    assert b.numpy().tolist() == [5] * 16
    assert is_poisoned(a)
    engine.clear_errors()


def test_edges_go_on_through_absent_nodes():
    a, b = cs.zeros(16, np.int32), cs.zeros(16, np.int32)
    with cs.graph() as g:
        a += 1
        b += a
        a += 1
    first, between, last = g.nodes
    one = {first: [first], between: [], last: [last]}
    assert intact.edges_among(one) == [(), (first,)]
    assert intact.edges_among({**one, first: [], between: [between]}) == [(), (between,)]


def test_of_joined_copies_only_the_one_that_needs_failed_data_is_left_out(engine):
    a, b = cs.array(np.arange(16, dtype=np.int32)), cs.zeros(16, np.int32)
    with cs.graph() as g:
        cs.copy(b[:8], a[:8])
        cs.copy(b[8:], a[8:])
    executable = g.instantiate()
    assert "1 of 2 nodes merged" in executable.report()
    engine.push(fail, writes=[a[8:]])
    executable.launch()
    assert is_poisoned(b[8:])
    assert b[:8].numpy().tolist() == list(range(8))
