"""Costs of nodes and launches: paths and schedules by hand-made costs, and a measured launch."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph.costs import critical_path, estimated
from cudasync.testing import dags

# For each node the earlier nodes that it depends on, and its cost.
WEIGHTED = dags().flatmap(
    lambda dag: st.tuples(*(st.tuples(st.just(before), st.integers(0, 9)) for before in dag))
)


class Step:
    def __init__(self, index, before, device=None):
        self.index, self.before, self.device, self.pool = index, before, device, "compute"


def program(dag, device=None):
    nodes = []
    for index, (before, _) in enumerate(dag):
        nodes.append(Step(index, tuple(nodes[each] for each in before), device))
    return nodes, {node: float(cost) for node, (_, cost) in zip(nodes, dag, strict=True)}


def longest(nodes, costs):
    """The cost of the longest chain, by trying every chain."""

    def ending(node):
        return costs[node] + max(map(ending, node.before), default=0)

    return max(map(ending, nodes), default=0)


def engine_of(workers):
    return SimpleNamespace(_pools={"compute": SimpleNamespace(size=workers)})


@given(WEIGHTED, st.integers(1, 3))
def test_a_critical_path_is_the_longest_chain_and_bounds_every_schedule(dag, workers):
    nodes, costs = program(dag)
    path = critical_path(nodes, costs)
    assert sum(costs[node] for node in path) == longest(nodes, costs)
    assert all(a in b.before for a, b in itertools.pairwise(path))
    found = estimated(nodes, costs, engine_of(workers))
    assert found.critical_s == longest(nodes, costs)
    assert found.serial_s == sum(costs.values())
    assert found.critical_s <= found.here_s <= found.serial_s
    if workers == 1:
        assert found.here_s == found.serial_s


@pytest.mark.parametrize("mode", ["async", "serial"])
def test_a_launch_that_measures_does_what_a_launch_does(mode):
    x, seen = cs.array(np.arange(8, dtype=np.float32)), []
    with cs.Engine(mode):
        with cs.graph() as g:
            y = x * 2
            x += 1
            cs.copy(y[:4], x[:4])
            cs.engine().push(lambda: seen.append(1), reads=y, name="see")
        exe = g.instantiate()
        with pytest.raises(ValueError, match=r"call exe.measure\(\) first"):
            exe.critical_path()
        exe.measure()
        assert x.numpy().tolist() == list(range(1, 9))
        assert y.numpy().tolist() == [1, 2, 3, 4, 8, 10, 12, 14]
        assert seen == [1]
        path = exe.critical_path()
        assert [node.name for node, _ in path] == ["multiply", "add", "copy DtoD", "see"]
        assert all(seconds > 0 for _, seconds in path)
        found = exe.estimate()
        assert found.serial_s == pytest.approx(sum(seconds for _, seconds in path))
        assert found.critical_s == pytest.approx(found.here_s) == pytest.approx(found.serial_s)
        with cs.graph(), pytest.raises(cs.RecordingError, match="measurement"):
            exe.measure()
