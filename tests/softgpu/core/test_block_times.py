"""Blocks of recorded programs in virtual time: what is fused, overlaps, and costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.graph import device_graph, executable_sharing

TIMES = 10
DEVICE_GRAPH = executable_sharing.device_graph


def in_a_row(nodes):
    """The planted bug: each node waits for the one before it."""
    return [nodes[at - 1 : at] if at else () for at in range(len(nodes))]


def chained(nodes, edges, *options):
    return DEVICE_GRAPH(nodes, in_a_row(nodes), *options)


def update(u):
    u[...] = xp.tanh(u * 2 + 1) * u + xp.exp(-u) * 0.5


def arrays(count, size):
    return [cs.array(np.full(size, 0.5, np.float32)) for _ in range(count)]


def elapsed_us(record, *without):
    """The virtual time of a launch, from the start of its first op to the end of its last."""
    with cs.graph() as g:
        kept = record(g)
    with g.instantiate(without=without) as executable:
        executable.launch().wait()
        with cs.profile() as profile:
            executable.launch()
            cs.waitall()
    del kept
    times = [each for each in profile.records if each.device is not None]
    return max(each.end_us for each in times) - min(each.start_us for each in times)


def written_out(count, size):
    def record(g):
        us = arrays(count, size)
        for _ in range(TIMES):
            for u in us:
                update(u)
        return us

    return record


def repeated(count, size):
    def record(g):
        us = arrays(count, size)
        with g.repeat(TIMES):
            for u in us:
                update(u)
        return us

    return record


def chosen(count, size):
    def record(g):
        us, flag = arrays(count, size), cs.array(np.array([1], np.int32))
        with g.cond(flag):
            for _ in range(TIMES):
                for u in us:
                    update(u)
        return us, flag

    return record


@pytest.mark.lazy
@pytest.mark.parametrize("size", [64, 1 << 12, 1 << 16])
@pytest.mark.parametrize("without", [(), ("conditionals",)], ids=["device", "engine"])
def test_ten_updates_in_a_repeat_take_as_long_as_written_out(size, without):
    one = elapsed_us(repeated(1, size), *without)
    assert one <= 1.15 * elapsed_us(written_out(1, size), *without)


@pytest.mark.lazy
@pytest.mark.parametrize("block", [repeated, chosen])
@pytest.mark.parametrize("without", [(), ("conditionals",)], ids=["device", "engine"])
def test_branches_of_a_body_overlap(block, without, monkeypatch):
    size = 1 << 12
    one = elapsed_us(block(1, size), "unroll", *without)
    assert elapsed_us(block(4, size), "unroll", *without) <= 1.05 * one
    monkeypatch.setattr(device_graph, "reduced", in_a_row)
    monkeypatch.setattr(executable_sharing, "device_graph", chained)
    assert elapsed_us(block(4, size), "unroll", *without) > 2 * one
