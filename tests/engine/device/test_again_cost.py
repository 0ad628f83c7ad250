"""The cost of a graph launch in our bytecodes, by the number of arrays that it writes."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer, is_library

import cudasync as cs
from cudasync.engine.log.histories import Known
from cudasync.graph.instance import Instance

pytestmark = pytest.mark.usefixtures("tracing_ends")

MOST_PER_ARRAY = 8
# With sixteen arrays. It was 795, measured on Python 3.11, and 1026 without the short way.
MOST_ALTOGETHER = 900


def cost(count, nodes):
    """The bytecodes of a launch behind itself, if its nodes write `count` arrays."""
    arrays = [cs.zeros(8, np.int32) for _ in range(count)]
    with cs.graph() as g:
        for number in range(nodes):
            array = arrays[number % count]
            array += 1
    found = []
    with g.instantiate(without=("fusion",)) as executable:
        for _ in range(7):
            executable.launch()
            cs.waitall(PATIENCE_S)
            freezer = Freezer(None, is_library)
            with freezer:
                executable.launch()
            found.append(freezer.points)
    return median(found)


def per_array():
    return (cost(17, 34) - cost(1, 34)) / 16


def test_an_array_more_costs_a_few_bytecodes_and_a_node_more_none():
    assert per_array() <= MOST_PER_ARRAY
    assert cost(4, 8) == cost(4, 80)


def test_a_launch_that_looks_at_each_history_again_is_found(monkeypatch):
    monkeypatch.setattr(Known, "latest", property(lambda _: None, lambda *_: None))
    assert per_array() > MOST_PER_ARRAY


def test_a_launch_that_needs_no_check_takes_the_short_way():
    assert cost(16, 32) <= MOST_ALTOGETHER


def test_a_launch_that_takes_the_long_way_is_found(monkeypatch):
    no_short_way = property(lambda _: None, lambda *_: None)
    monkeypatch.setattr(Instance, "push_only", no_short_way, raising=False)
    assert cost(16, 32) > MOST_ALTOGETHER
