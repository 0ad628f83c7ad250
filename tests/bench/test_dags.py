"""The programs of bench_dags: each has a sufficient order by hand, and equals NumPy."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import bench_dags
import pytest

import cudasync as cs
from bench.graphs.dags import Dag, all_dags
from bench.harness.measurement import ChecksumError


def six():
    return {dag.name: dag for dag in all_dags(lambda name, small, large: small)}


def missing(dag, waits):
    """The pairs of steps that conflict and are not ordered."""
    after: list[set[int]] = []
    last: dict[int, int] = {}
    for number, step in enumerate(dag.steps):
        direct = {*waits[number], *([last[step.stream]] if step.stream in last else [])}
        after.append(direct.union(*(after[each] for each in direct)))
        last[step.stream] = number
    return [
        (first, second)
        for second, later in enumerate(dag.steps)
        for first, earlier in enumerate(dag.steps[:second])
        if (earlier.writes in later.touches or later.writes in earlier.touches)
        and first not in after[second]
    ]


@pytest.mark.parametrize("name", six())
def test_what_is_placed_by_hand_is_in_order(name):
    dag = six()[name]
    waits = dag.waits()
    assert not missing(dag, waits)
    # Each wait is needed.
    for number, awaited in enumerate(waits):
        for each in awaited:
            fewer = [[x for x in w if (at, x) != (number, each)] for at, w in enumerate(waits)]
            assert missing(dag, fewer)


def test_programs_are_as_wide_as_they_are_said_to_be():
    shapes = {
        dag.name: (len(dag.steps), len({s.stream for s in dag.steps})) for dag in six().values()
    }
    assert shapes == {
        "VEC": (3, 2),
        "B&S": (10, 10),
        "IMG": (11, 4),
        "ML": (9, 2),
        "HITS": (30, 2),
        "DL": (8, 2),
    }


@pytest.fixture(scope="module")
def module():
    return cs.Module.from_file(bench_dags.KERNELS)


WAYS = {
    "by hand": lambda *made: bench_dags.ByHand(*made, is_one=False),
    "one stream": lambda *made: bench_dags.ByHand(*made, is_one=True),
    "eager": bench_dags.Eager,
    "graph": bench_dags.Graph,
    "graph with blocks": bench_dags.Blocks,
}


def found(way, dag, module):
    with cs.Engine() as engine, cs.use(engine), ExitStack() as closing:
        made = WAYS[way](closing, dag, module)
        return bench_dags.checksum(dag, made, partial(dag.expected, dag.arrays))()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_what_numpy_makes_of_it_is_told(way, module):
    dag: Dag = six()["VEC"]
    assert found(way, dag, module)
    first, second, last = dag.steps
    dag.steps = [first, replace(second, args=("x", "y2", *second.args[2:])), last]
    with pytest.raises(ChecksumError, match="VEC: sum"):
        found(way, dag, module)
