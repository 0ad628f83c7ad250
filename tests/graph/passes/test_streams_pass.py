"""The pass that assigns streams: the first stream is the critical path, and the order stays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph.device_graph import device_graph
from cudasync.graph.passes import PASSES, streams
from cudasync.graph.statistics import bytes_of, seconds_of

# The target and the operand of each step: places in a list of arrays of several sizes.
STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)
SIZES = (10, 1_000_000, 100_000, 400_000, 100)
FUSES = ("fusion", "dead", "memory")
SEARCH = settings(
    max_examples=100, deadline=None, database=None, phases=[Phase.generate],
    report_multiple_bugs=False,
)  # fmt: skip


def executable(steps, without=()):
    """A graph of kernels that access memory without useful results. It is never launched."""
    arrays = [cs.empty(size, np.float32) for size in SIZES]
    with cs.graph() as g:
        for target, source in steps:
            least = min(SIZES[target], SIZES[source])
            arrays[target][:least] += arrays[source][:least]
    return g.instantiate(without=(*FUSES, *without))


def orders(exe):
    """For each node, by its place, all its direct and indirect predecessors."""
    behind: dict = {}
    for node in exe.nodes:
        behind[node.index] = set().union(*({o.index} | behind[o.index] for o in node.before))
    return behind


def changed_orders(steps):
    with executable(steps) as exe, executable(steps, ["streams"]) as plain:
        return orders(exe) != orders(plain)


def detours(steps):
    """The difference between the first stream and the longest path through the program."""
    with executable(steps) as exe:
        first = [node for node in exe.nodes if not node.stream]
        longest = max(streams.remaining(exe.nodes).values())
        if any(node.stream for node in exe.nodes):
            assert all(one in other.before for one, other in itertools.pairwise(first))
            assert sum(seconds_of(n, bytes_of(n)) for n in first) == pytest.approx(longest)


@given(STEPS)
@settings(max_examples=20)
def test_what_comes_after_what_stays_as_it_is(steps):
    assert not changed_orders(steps)


@given(STEPS)
@settings(max_examples=20)
def test_the_first_stream_is_the_longest_way(steps):
    detours(steps)


def takes_streams_for_an_order(nodes):
    """The planted bug: a stream is taken to order its nodes without an edge."""
    made, said = streams.run(nodes)
    for node in made:
        node.before = tuple(other for other in node.before if other.stream != node.stream)
    return made, said


def follows_anybody(nodes, left):
    """The planted bug: the least urgent node continues the stream."""
    found = FOLLOWERS(nodes, left)
    return {node: behind[::-1] for node, behind in found.items()}


FOLLOWERS = streams._followers


def test_a_pass_that_takes_streams_for_an_order_is_found(monkeypatch):
    monkeypatch.setitem(PASSES, "streams", takes_streams_for_an_order)

    @SEARCH
    @given(STEPS)
    def search(steps):
        assert not changed_orders(steps)

    with pytest.raises(AssertionError):
        search()


def test_a_detour_is_found(monkeypatch):
    monkeypatch.setattr(streams, "_followers", follows_anybody)

    @SEARCH
    @given(STEPS)
    def search(steps):
        detours(steps)

    with pytest.raises(AssertionError):
        search()


# Two steps over a million elements, beside one over ten; the last step needs both.
FORK = [(1, 1), (1, 1), (0, 0), (2, 1), (2, 0)]


def driver_priorities(exe):
    """The priority of each kernel in the driver's graph, in the order of adding."""
    found = []

    def ready(graph):
        found.extend(node.priority for node in graph.nodes)
        return graph.instantiate()

    device_graph(exe.nodes, [node.before for node in exe.nodes], cs.Device(0), ready)[0].close()
    return found


def test_kernels_of_the_critical_path_go_first_in_the_drivers_graph():
    with executable(FORK) as exe:
        assert [node.stream for node in exe.nodes] == [0, 0, 1, 0, 0]
        assert driver_priorities(exe) == [-1, -1, 0, -1, -1]
        assert "5 nodes of devices on 2 streams, 4 of them on the first" in exe.report()
    with executable(FORK, ["streams"]) as exe:
        assert driver_priorities(exe) == [0] * 5
        assert "streams: left out" in exe.report()


def test_a_chain_has_nothing_to_go_before():
    with executable([(1, 1), (1, 1)]) as exe:
        assert driver_priorities(exe) == [0, 0]
        assert "2 nodes of devices on 1 streams" in exe.report()


def test_graphs_of_other_priorities_are_not_shared():
    with executable(FORK) as exe, executable(FORK, ["streams"]) as other:
        assert exe.parts[0].origin == other.parts[0].origin == "instantiated"
