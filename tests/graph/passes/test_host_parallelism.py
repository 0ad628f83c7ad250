"""When host functions become separate ops: where several workers pay off."""

from __future__ import annotations

import pytest
from helpers.engine_programs.host_programs import host_programs
from helpers.engine_programs.strategies import settings as program_settings
from helpers.graphs.recorded_programs import graph_differences
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph.parts import host, host_parallelism
from cudasync.graph.parts.host_parallelism import (
    LONG_S,
    MOST,
    OP_S,
    SHORT_S,
    Trial,
    together,
    urgent_first,
)
from cudasync.testing import dags

MIDDLING_S = (SHORT_S + LONG_S) / 2


class Clock:
    """A clock that advances only in functions."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(host, "perf_counter", made)
    return made


def recorded(clock, before, seconds, without=()):
    """A graph of functions that take `seconds`, each behind the functions with these numbers."""
    tokens = [cs.Var(str(number)) for number in range(len(before))]

    def takes():
        clock.now += seconds

    with cs.graph() as g:
        for number, others in enumerate(before):
            cs.engine().push(takes, reads=[tokens[o] for o in others], writes=tokens[number])
    return g.instantiate(without=without)


SHAPES = {
    "independent": [()] * 6,
    "fork": [(), (0,), (0,), (0,), (0,), (1, 2, 3, 4)],
    "chain": [(), (0,), (1,), (2,)],
    # Two of the functions can run at once, and no others.
    "tail": [(), (0,), (0,), (1, 2), *((number,) for number in range(3, 20))],
}
WIDE = ("independent", "fork")


def launches_until_spread(clock, shape, seconds):
    """The number of launches until the functions are spread; None if it exceeds five."""
    with cs.Engine(workers=2), recorded(clock, SHAPES[shape], seconds) as exe:
        (part,) = exe.parts
        for count in range(1, 6):
            exe.launch().wait()
            if part.is_spread:
                assert "spread over workers" in exe.report()
                exe.launch().wait()
                return count
    return None


@pytest.mark.parametrize("shape", SHAPES)
def test_middling_functions_are_spread_where_several_can_run_at_once(clock, shape):
    assert launches_until_spread(clock, shape, MIDDLING_S) == (2 if shape in WIDE else None)


@pytest.mark.parametrize("shape", SHAPES)
def test_short_ones_never_are_and_long_ones_soon(clock, shape):
    assert launches_until_spread(clock, shape, SHORT_S / 2) is None
    assert launches_until_spread(clock, shape, 2 * LONG_S) == 2


def test_a_launch_whose_thread_was_suspended_spreads_nothing(clock):
    """Some launches seem to take long, and the next ones do not: the functions stay a loop."""
    suspended = []
    with cs.Engine(workers=2):
        with cs.graph() as g:
            cs.engine().push(lambda: setattr(clock, "now", clock.now + sum(suspended)))
            cs.engine().push(int)
        exe = g.instantiate()
        for _ in range(3):
            suspended.append(100 * LONG_S)
            exe.launch().wait()
            suspended.clear()
            exe.launch().wait()
        assert not exe.parts[0].is_spread


def test_a_rule_that_does_not_look_at_what_comes_after_what_is_found(clock, monkeypatch):
    def side_by_side(nodes, seconds, workers):
        return sum(seconds.values()) / workers

    monkeypatch.setattr(host_parallelism, "together", side_by_side)
    assert launches_until_spread(clock, "tail", MIDDLING_S) == 2


def test_one_worker_is_worth_nothing_more(clock):
    with cs.Engine(workers=1), recorded(clock, SHAPES["independent"], MIDDLING_S) as exe:
        for _ in range(3):
            exe.launch().wait()
        assert not exe.parts[0].is_spread


def test_the_time_of_several_workers_is_that_of_an_op_for_each_node():
    with cs.Engine(workers=1), recorded(Clock(), SHAPES["fork"], 0.0) as exe:
        nodes = exe.nodes
        assert len(nodes) == 6
        seconds = dict.fromkeys(nodes, 1.0)
        assert together(nodes, seconds, 1) == pytest.approx(6 * (1 + OP_S))
        # The first function, two rounds of two, then the last function.
        assert together(nodes, seconds, 2) == pytest.approx(4 * (1 + OP_S))
        assert together(nodes, seconds, 9) == pytest.approx(3 * (1 + OP_S))
        assert together(nodes, seconds, 2) < MOST * 6


def spread_in_the_end(clock, monkeypatch, launch_s):
    """True if six functions are still spread after spread launches took `launch_s`."""
    seconds = 6 * MIDDLING_S
    monkeypatch.setattr(host_parallelism, "_elapsed", lambda times: launch_s * seconds)
    with cs.Engine(workers=2), recorded(clock, SHAPES["independent"], MIDDLING_S) as exe:
        found = []
        for _ in range(8):
            exe.launch().wait()
            found.append(exe.parts[0].is_spread)
        assert found[1]
    return found[-1]


def test_what_did_not_pay_is_a_loop_again(clock, monkeypatch):
    assert not spread_in_the_end(clock, monkeypatch, 1.1)


def test_what_paid_stays_spread(clock, monkeypatch):
    assert spread_in_the_end(clock, monkeypatch, 0.7)


def test_launches_are_watched_one_at_a_time_and_twice():
    trial = Trial(1.0, 2)
    first = trial.next()
    assert trial.next() is None
    first += [(0.0, 1.0), (0.5, 1.5)]
    second = trial.next()
    assert not trial.has_failed
    second += [(5.0, 6.0), (5.0, 6.0)]
    assert trial.next() is None
    assert trial.has_failed
    second[:] = [(5.0, 5.5), (5.0, 5.9)]
    assert not trial.has_failed


TIMES = st.lists(st.sampled_from([0.0, 1.0, 5.0]), min_size=10, max_size=10)


@given(dags(most_nodes=10), TIMES)
def test_the_most_urgent_come_first_and_none_before_what_it_needs(before, times):
    with recorded(Clock(), before, 0.0, ["host"]) as exe:
        nodes = exe.nodes
        seconds = dict(zip(nodes, times, strict=False))
        order = urgent_first(nodes, seconds)
        for node in nodes:
            assert all(order.index(other) < order.index(node) for other in node.before)
        assert together(order, seconds, 1) == pytest.approx(together(nodes, seconds, 1))
        longest = max((left for left in ways(nodes, seconds).values()), default=0.0)
        assert ways(nodes, seconds)[order[0]] == longest


def ways(nodes, seconds):
    """The length of each node's longest path to the end, by trying all paths."""

    def way(node):
        behind = [other for other in nodes if node in other.before]
        return seconds[node] + max(map(way, behind), default=0.0)

    return {node: way(node) for node in nodes}


@given(host_programs(), program_settings())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_segment_that_is_spread_by_its_times_does_what_its_program_does(
    monkeypatch, program, setting
):
    with monkeypatch.context() as patch:
        patch.setattr(host_parallelism, "SHORT_S", 0.0)
        patch.setattr(host_parallelism, "MOST", 1e9)
        assert not graph_differences(program, setting, 6, beside=True)
