"""The pass that joins copies and fills: the same bytes, fewer nodes."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.fuzzing.search import first_difference
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph.passes import copies
from cudasync.graph.transfers import Transfer

SIZE, ARRAYS = 12, 3
pieces = st.tuples(
    st.integers(0, ARRAYS - 1),
    st.integers(0, ARRAYS - 1),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["copy", "copy", "copy", "add", "back"]),
)
programs = st.lists(pieces, min_size=2, max_size=12)
PIECE = SIZE // 4


def do(steps, arrays, host, copy):
    for target, source, to, of, what in steps:
        left = arrays[target][to * PIECE : (to + 1) * PIECE]
        right = arrays[source][of * PIECE : (of + 1) * PIECE]
        if what == "add":
            left += right
        elif what == "back":
            copy(host[to * PIECE : (to + 1) * PIECE], right)
        elif (target, to) != (source, of):
            copy(left, right)


def values():
    return [np.arange(SIZE, dtype=np.int32) + 100 * i for i in range(ARRAYS)]


def differences(steps, without=()):
    expected, host = values(), np.zeros(SIZE, np.int32)
    for _ in range(2):
        do(steps, expected, host, np.copyto)
    arrays = [cs.array(each) for each in values()]
    pinned = cs.pinned_empty((SIZE,), np.int32)
    pinned[:] = 0
    cs.waitall()
    with cs.graph() as g:
        do(steps, arrays, pinned, cs.copy)
    with g.instantiate(without=without) as executable:
        for _ in range(2):
            executable.launch()
        cs.waitall()
    found = [each.numpy().tolist() for each in arrays] + [pinned.tolist()]
    wanted = [each.tolist() for each in (*expected, host)]
    return [pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]]


@given(programs, st.sampled_from([(), ("copies",), ("edges",)]))
def test_results_are_numpys_with_the_pass_on_and_off(steps, without):
    assert not differences(steps, without)


def joins_anything(self, other):
    first, last = sorted((self, other), key=lambda each: each.target[0].start)
    right = JOINED(first, Transfer(last.target, last.source, self.value))
    if (
        right is None
        and self.source
        and other.source
        and first.target[0].end == last.target[0].start
    ):
        size = last.target[0].end - first.target[0].start
        start = first.source[0].start
        kind = type(first.target[0])
        target = kind(first.target[0].start, last.target[0].end)
        return Transfer((target, first.target[1]), (kind(start, start + size), first.source[1]))
    return right


JOINED = Transfer.joined


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bug", ["sources apart", "whatever lies between"])
def test_a_planted_bug_is_found(bug, monkeypatch):
    if bug == "sources apart":
        monkeypatch.setattr(Transfer, "joined", joins_anything)
    else:
        right = copies.run

        def run(nodes):
            for node in nodes:
                node.before = ()
            return right(nodes)

        monkeypatch.setitem(copies_in_order(), "copies", run)

    def differences_or_error(steps):
        try:
            return differences(steps)
        except cs.CudaError as error:
            # A joined copy may go beyond its memory.
            return [error]

    assert first_difference(differences_or_error, programs)


def copies_in_order():
    from cudasync.graph import passes

    return passes.PASSES


def test_parts_of_a_copy_are_one_node():
    x, y, z = (cs.array(each) for each in values())
    with cs.graph() as g:
        for at in (2, 0, 1, 3):
            cs.copy(y[at * PIECE : (at + 1) * PIECE], x[at * PIECE : (at + 1) * PIECE])
        cs.copy(z[:6], x[6:])
        cs.copy(z[6:], x[:6])
    exe = g.instantiate()
    assert len(exe.nodes) == 3
    assert "copies: 3 of 6 nodes merged into other nodes" in exe.report()
    exe.launch()
    assert y.numpy().tolist() == x.numpy().tolist()
    assert z.numpy().tolist() == [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5]


def test_a_copy_of_pageable_memory_is_joined_with_its_like_alone():
    memory = np.arange(4 * mmap.PAGESIZE, dtype=np.uint8)
    # Whole pages. The driver knows the first one.
    host = memory[-memory.ctypes.data % mmap.PAGESIZE :][: 3 * mmap.PAGESIZE]
    page, x = mmap.PAGESIZE, cs.zeros(host.size, np.uint8)
    driver.cuMemHostRegister(host.ctypes.data, page, 0)
    try:
        with cs.graph() as g:
            for at in range(3):
                cs.copy(x[at * page : (at + 1) * page], host[at * page : (at + 1) * page])
        exe = g.instantiate()
        assert [node.is_blocking for node in exe.nodes] == [False, True]
        exe.launch()
        assert x.numpy().tolist() == host.tolist()
    finally:
        driver.cuMemHostUnregister(host.ctypes.data)


def test_edges_that_others_say_are_left_out():
    x = cs.zeros(4)
    with cs.graph() as g:
        for _ in range(3):
            x += 1
        y = x * 2
        cs.engine().push(lambda: None, reads=[x, y])
    assert "edges: 4 of 5 edges are needed" in g.instantiate(without=("fusion",)).report()
    assert "edges: left out" in g.instantiate(without=("edges",)).report()
    x.wait()


def test_rows_that_lie_apart_are_a_node_that_is_aimed_and_not_joined():
    host = np.arange(64, dtype=np.int32).reshape(8, 8)
    x, y = cs.array(host), cs.array(host + 100)
    left, right = (cs.zeros((8, 8), np.int32) for _ in range(2))
    with cs.graph() as g:
        source, target = g.argument("source", x), g.argument("target", left)
        cs.copy(target[:, :4], source[:, 4:])
        cs.copy(target[:4, 4:], source[:4, :4])
        cs.copy(target[4:, 4:], source[4:, :4])
    exe = g.instantiate()
    assert [node.can_be_aimed for node in exe.nodes] == [True] * 3
    turned = np.roll(host, 4, axis=1)
    for value, to, expected in ((x, left, turned), (y, right, turned + 100)):
        exe.update(source=value, target=to)
        exe.launch()
        assert to.numpy().tolist() == expected.tolist()


def test_poison_in_the_gaps_of_a_target_stays_where_a_graph_writes_rows():
    def fail():
        raise ValueError("no data")

    with cs.Engine() as engine:
        x, y = cs.zeros((8, 8), np.int32), cs.zeros((8, 8), np.int32)
        with cs.graph() as g:
            to = g.argument("to", y)
            cs.copy(to[:, :4], x[:, :4])
        other = cs.zeros((8, 8), np.int32)
        exe = g.instantiate()
        exe.update(to=other)
        engine.push(fail, writes=[other])
        exe.launch()
        with pytest.raises(cs.OpError):
            other[0, 4:].wait()
        engine.clear_errors()
