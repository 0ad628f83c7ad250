"""Captured streams, through the real cuda.bindings."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from cuda.bindings import driver
from helpers.driver.call_results import cuda13, ok
from helpers.driver.graph_builder import (
    HOST_FUNCTION,
    GraphText,
    Words,
    code,
    edges_of,
    kinds_of,
    native,
    nodes_of,
    run,
)
from helpers.driver.stream_capture import ACTIVE, GLOBAL, NONE, RELAXED, begin, end, status

EXTERNAL = 1


def test_what_is_captured_runs_when_the_graph_is_launched_and_not_before(kernels, side):
    x, y = Words(4), Words(4)
    seen = []
    function = HOST_FUNCTION(seen.append)
    found = np.zeros(4, np.uint32)
    begin(side)
    assert status(side) == ACTIVE
    kernels.launch_set(side, x, 3)
    ok(driver.cuMemsetD32Async(y.address, 5, 4, side))
    ok(driver.cuMemcpyDtoDAsync(x.address + 8, y.address, 8, side))
    ok(driver.cuMemcpyDtoHAsync(found.ctypes.data, x.address, 16, side))
    ok(driver.cuLaunchHostFunc(side, native(function), 3))
    graph = end(side)
    assert status(side) == NONE
    assert (x.read(), seen) == ([0] * 4, [])
    assert kinds_of(graph) == ["KERNEL", "MEMSET", "MEMCPY", "MEMCPY", "HOST"]
    nodes = [int(node) for node in nodes_of(graph)]
    assert edges_of(graph) == list(pairwise(nodes))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    run(executable, side)
    assert found.tolist() == [3, 4, 5, 5]
    assert seen == [3]


def test_a_fork_and_a_join_become_edges(kernels, side, other, events):
    x, y = Words(4), Words(4)
    begin(side)
    kernels.launch_set(side, x, 1)
    ok(driver.cuEventRecord(events[0], side))
    ok(driver.cuStreamWaitEvent(other, events[0], 0))
    assert status(other) == ACTIVE
    kernels.launch_mix(other, y, x, 1)
    kernels.launch_mix(side, x, x, 1)
    ok(driver.cuEventRecord(events[1], other))
    ok(driver.cuStreamWaitEvent(side, events[1], 0))
    kernels.launch_mix(side, x, y, 1)
    graph = end(side)
    assert status(other) == NONE
    a, b, c, d = (int(node) for node in nodes_of(graph))
    assert sorted(edges_of(graph)) == sorted([(a, b), (a, c), (b, d), (c, d)])


def test_a_rectangle_is_captured(kernels, side):
    x, y = Words(8), Words(8)
    what = driver.CUDA_MEMCPY2D()
    device = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    what.srcMemoryType = what.dstMemoryType = device
    what.srcDevice, what.dstDevice = x.address, y.address
    what.srcPitch, what.dstPitch, what.WidthInBytes, what.Height = 16, 8, 4, 2
    begin(side)
    kernels.launch_set(side, x, 1)
    ok(driver.cuMemcpy2DAsync(what, side))
    graph = end(side)
    assert kinds_of(graph) == ["KERNEL", "MEMCPY"]
    run(ok(driver.cuGraphInstantiate(graph, 0)), side)
    assert y.read() == [1, 0, 5, 0, 0, 0, 0, 0]


def test_a_capture_can_go_on_in_a_graph_that_is_there(graph, side):
    x = Words(4)
    first = graph.set(x, 1)
    plain = [driver.CUgraphEdgeData()]
    ok(driver.cuStreamBeginCaptureToGraph(side, graph.graph, [first], plain, 1, GLOBAL))
    graph.kernels.launch_mix(side, x, x, 1)
    assert int(end(side)) == int(graph.graph)
    assert kinds_of(graph.graph) == ["KERNEL", "KERNEL"]
    run(graph.instantiate(), side)
    assert x.read() == [32 * (1 + i) + i for i in range(4)]


def test_what_a_capture_has_so_far_can_be_asked_for_and_changed(kernels, side):
    x, y = Words(4), Words(4)
    begin(side)
    kernels.launch_set(side, x, 1)
    info = ok(cuda13.cuStreamGetCaptureInfo(side))
    assert info[0] == ACTIVE
    graph, nodes, count = info[2], info[3], info[5]
    assert (kinds_of(graph), count) == (["KERNEL"], 1)
    text = GraphText(kernels, graph)
    by_hand = text.set(y, 10)
    plain = [driver.CUgraphEdgeData()]
    ok(cuda13.cuStreamUpdateCaptureDependencies(side, [by_hand], plain, 1, 0))
    kernels.launch_mix(side, x, y, 1)
    ok(cuda13.cuStreamUpdateCaptureDependencies(side, [nodes[0]], plain, 1, 1))
    assert int(end(side)) == int(graph)
    first, second, third = (int(node) for node in nodes_of(graph))
    assert edges_of(graph) == [(first, third), (second, third)]
    assert ok(cuda13.cuStreamGetCaptureInfo(side))[0] == NONE


def test_external_events_become_nodes(kernels, side, other, events):
    begin(side)
    ok(driver.cuStreamWaitEvent(side, events[0], EXTERNAL))
    ok(driver.cuEventRecordWithFlags(events[1], side, EXTERNAL))
    graph = end(side)
    assert kinds_of(graph) == ["WAIT_EVENT", "EVENT_RECORD"]
    ok(driver.cuStreamWaitEvent(other, events[1], 0))
    assert code(driver.cuEventRecordWithFlags(events[1], other, EXTERNAL)) != 0


def test_pageable_memory_is_not_read_while_it_is_captured(kernels, side):
    x = Words(4)
    source = np.ones(4, np.uint32)
    begin(side, RELAXED)
    ok(driver.cuMemcpyHtoDAsync(x.address, source.ctypes.data, 16, side))
    graph = end(side)
    source[:] = 7
    run(ok(driver.cuGraphInstantiate(graph, 0)), side)
    assert x.read() == [7] * 4


# Forbidden calls
