"""The pass that joins chains of host functions: the same calls and poison, fewer nodes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.engine_programs.host_programs import host_programs
from helpers.engine_programs.strategies import settings
from helpers.fuzzing.search import first_difference
from helpers.graphs.recorded_programs import graph_differences
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph.parts import host, host_parallelism
from cudasync.graph.passes import host as joining


@given(host_programs(), settings(), st.booleans(), st.booleans())
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_outcome_and_poison_are_eager_with_the_pass_on_and_off(
    monkeypatch, program, setting, is_on, is_spread
):
    without = () if is_on else ("host",)
    with monkeypatch.context() as patch:
        if is_spread:
            patch.setattr(host_parallelism, "LONG_S", 0.0)
        assert not graph_differences(program, setting, 3, beside=True, without=without)


def joins_what_others_need(nodes):
    """The planted bug: each node joins a dependent, despite further needs and dependents."""
    return {
        other: node
        for node in nodes
        for other in node.before[-1:]
        if joining._may_meet(other, node)
    }


def fails_as_a_whole(self, at, op):
    """The planted bug: one failed function makes all functions of its segment fail."""
    for each in range(len(self._steps)):
        FAIL(self, each, op)


FAIL = host.HostPart._fail


# The second shows in few programs.
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (host.HostPart, "_fail", fails_as_a_whole),
        (joining, "_following", joins_what_others_need),
    ],
    ids=["fails as a whole", "what others need"],
)
def test_a_planted_bug_is_found(where, name, wrong, monkeypatch):
    monkeypatch.setattr(where, name, wrong)

    def differences(program, setting):
        return graph_differences(program, setting, 2, beside=True)

    assert first_difference(differences, host_programs(), settings())


def chain(count, calls, fails_at=None):
    """A graph that calls `count` functions on one array, one after another."""
    x = cs.zeros(4, np.int32, device="cpu")

    def call(number):
        if number == fails_at:
            raise ValueError("as planned")
        calls.append(number)

    with cs.graph() as g:
        for number in range(count):
            cs.engine().push(
                lambda number=number: call(number), reads=x, writes=x, name=f"step {number}"
            )
    return g, x


def test_a_chain_is_one_node_and_all_of_it_is_called():
    calls = []
    g, x = chain(5, calls)
    exe = g.instantiate()
    assert [node.name for node in exe.nodes] == ["step 0 to step 4"]
    assert "host: 4 of 5 nodes merged into their predecessors, in 1 chains" in exe.report()
    exe.launch()
    x.wait()
    assert calls == [*range(5)]
    plain = g.instantiate(without=("host",))
    assert len(plain.nodes) == 5
    assert "host: left out" in plain.report()


def test_what_others_need_in_between_is_no_chain():
    x, y, z = (cs.zeros(4, np.int32, device="cpu") for _ in range(3))
    with cs.graph() as g:
        push = cs.engine().push
        push(lambda: None, writes=x)
        push(lambda: None, reads=x, writes=y)
        push(lambda: None, reads=x, writes=z)
        push(lambda: None, reads=[y, z], writes=x)
    assert len(g.instantiate().nodes) == 4


@pytest.mark.parametrize("is_spread", [False, True])
def test_a_failure_in_a_chain_names_the_function_that_failed(is_spread, monkeypatch):
    if is_spread:
        monkeypatch.setattr(host_parallelism, "LONG_S", 0.0)
    with cs.Engine() as engine:
        calls = []
        g, x = chain(4, calls, fails_at=2)
        other = cs.zeros(4, np.int32, device="cpu")
        with cs.graph() as both:
            g.instantiate().launch()
            cs.engine().push(lambda: None, writes=other, name="beside")
        op = both.instantiate().launch()
        with pytest.raises(cs.OpError, match=r"node 0 \(step 2\), recorded at .*test_host_chains"):
            op.wait()
        assert calls == [0, 1]
        with pytest.raises(cs.OpError, match="step 2"):
            x.numpy()
        assert other.numpy().tolist() == [0] * 4
        engine.clear_errors()


def test_a_chain_is_measured_as_its_functions_together():
    g, _ = chain(3, [])
    exe = g.instantiate()
    exe.measure()
    assert [node for node, _ in exe.critical_path()] == list(exe.nodes)
