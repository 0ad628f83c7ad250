"""The report of each pass: nodes, edges, bytes and estimated time, before and after the pass."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import cudasync as cs
from cudasync.graph import statistics
from cudasync.graph.passes import PASSES

LINE = re.compile(
    r"(\w+): .*; nodes (\d+) -> (\d+), edges (\d+) -> (\d+), bytes (\d+) -> (\d+), "
    r"estimated us ([\d.]+) -> ([\d.]+)"
)


@pytest.fixture
def graph():
    x = cs.array(np.arange(1000, dtype=np.float32))
    seen = []
    with cs.graph() as g:
        y = (x * 2 + 1) * x
        z = y + 1
        cs.copy(z[:500], y[:500])
        cs.copy(z[500:], y[500:])
        cs.engine().push(lambda: seen.append(1), reads=z, name="one")
        cs.engine().push(lambda: seen.append(2), reads=z, writes=cs.Var("seen"), name="two")
        lost = y * 5
    del lost
    g.kept = y, z
    return g


def test_each_pass_says_its_figures_and_begins_with_those_of_the_one_before(graph):
    exe = graph.instantiate()
    found = [LINE.fullmatch(line) for line in exe.report().splitlines()[: len(PASSES)]]
    assert [each[1] for each in found] == list(PASSES)
    for one, other in itertools.pairwise(found):
        assert one.group(3, 5, 7, 9) == other.group(2, 4, 6, 8)
    first, last = statistics.figures(graph.nodes), statistics.figures(exe.nodes)
    assert found[0].group(2, 4, 6) == tuple(map(str, first[:3]))
    assert found[-1].group(3, 5, 7) == tuple(map(str, last[:3]))
    assert last.nodes < first.nodes
    assert last.bytes < first.bytes
    assert last.estimated_s < first.estimated_s


def test_what_is_left_out_is_said_in_a_line_without_figures(graph):
    lines = graph.instantiate(without=("fusion",)).report().splitlines()
    assert "fusion: left out" in lines


def test_bytes_are_those_that_nodes_read_and_write():
    x = cs.array(np.arange(100, dtype=np.float32))
    with cs.graph() as g:
        y = x * 2
        x += 1
    assert [statistics.bytes_of(node) for node in g.nodes] == [800, 800]
    assert statistics.figures(g.nodes)[:3] == (2, 1, 1600)
    assert y.shape == (100,)


@pytest.mark.skipif(cs.device_count() < 2, reason="no second device")
def test_an_estimate_is_that_of_places_side_by_side():
    x, y = (cs.array(np.arange(100, dtype=np.float32), device=at) for at in range(2))
    with cs.graph() as g:
        x += 1
        y += 1
    both = statistics.figures(g.nodes).estimated_s
    with cs.graph() as g:
        x += 1
        x += 1
    assert statistics.figures(g.nodes).estimated_s == pytest.approx(2 * both)
