"""A race between two nodes of a graph names the lines that made the nodes, and the launch."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok

import cudasync as cs
from cudasync.softgpu.core.graphs.graph import Graph
from cudasync.testing import check

pytestmark = pytest.mark.lazy

GLOBAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


@pytest.fixture
def word():
    made = cs.DeviceBuffer(256)
    cs.memset_async(made, 0)
    cs.Device(0).synchronize()
    yield int(made.ptr)
    cs.Device(0).synchronize()


def filled(word, value):
    made = driver.CUDA_MEMSET_NODE_PARAMS()
    made.dst, made.value, made.elementSize, made.width, made.height = word, value, 4, 8, 1
    return made


def lines_of(function, text):
    """The places in this file of a function's lines that contain `text`."""
    lines, first = inspect.getsourcelines(function)
    return [f"{__file__}:{first + n}" for n, line in enumerate(lines) if text in line]


def launched(graph):
    exe = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphLaunch(exe, 0))
    ok(driver.cuCtxSynchronize())
    ok(driver.cuGraphExecDestroy(exe))
    ok(driver.cuGraphDestroy(graph))


def by_hand(word):
    context = ok(driver.cuCtxGetCurrent())
    graph = ok(driver.cuGraphCreate(0))
    ok(driver.cuGraphAddMemsetNode(graph, None, 0, filled(word, 1), context))
    ok(driver.cuGraphAddMemsetNode(graph, None, 0, filled(word, 2), context))
    launched(graph)


def by_capture(word):
    one, two = (ok(driver.cuStreamCreate(1)) for _ in range(2))
    fork, join = (ok(driver.cuEventCreate(0)) for _ in range(2))
    ok(driver.cuStreamBeginCapture(one, GLOBAL))
    ok(driver.cuEventRecord(fork, one))
    ok(driver.cuStreamWaitEvent(two, fork, 0))
    ok(driver.cuMemsetD32Async(word, 1, 8, one))
    ok(driver.cuMemsetD32Async(word, 2, 8, two))
    ok(driver.cuEventRecord(join, two))
    ok(driver.cuStreamWaitEvent(one, join, 0))
    launched(ok(driver.cuStreamEndCapture(one)))


@pytest.mark.parametrize(("program", "text"), [(by_hand, "MemsetNode("), (by_capture, "D32Async(")])
def test_both_nodes_are_told_by_the_lines_that_made_them(word, program, text):
    (race,) = check(lambda: program(word), kinds=["race"])
    assert sorted(each.site for each in race.accesses) == lines_of(program, text)
    (launch,) = lines_of(launched, "cuGraphLaunch")
    assert {each.launch for each in race.accesses} == {launch}
    assert f"launched at {launch}" in str(race)


def test_a_node_in_a_child_keeps_its_line(word):
    def program():
        context = ok(driver.cuCtxGetCurrent())
        child, graph = (ok(driver.cuGraphCreate(0)) for _ in range(2))
        ok(driver.cuGraphAddMemsetNode(child, None, 0, filled(word, 1), context))
        ok(driver.cuGraphAddChildGraphNode(graph, None, 0, child))
        ok(driver.cuGraphAddMemsetNode(graph, None, 0, filled(word, 2), context))
        launched(graph)
        ok(driver.cuGraphDestroy(child))

    (race,) = check(program, kinds=["race"])
    assert sorted(each.site for each in race.accesses) == lines_of(program, "MemsetNode(")


def test_what_is_no_node_has_no_launch(word):
    one, two = cs.Stream(), cs.Stream()

    def program():
        for stream in (one, two):
            ok(driver.cuMemsetD32Async(word, np.uint32(1), 8, stream.handle))

    (race,) = check(program, kinds=["race"])
    assert {each.launch for each in race.accesses} == {""}
    assert "launched at" not in str(race)


def test_nobody_notes_lines_behind_a_check(word):
    check(lambda: by_hand(word), kinds=["race"])
    assert Graph.noted_by is None


def test_a_graph_whose_nodes_forget_their_lines_is_found_out(word, monkeypatch):
    monkeypatch.setattr(Graph, "noted_by", None)
    monkeypatch.setattr("cudasync.softgpu.core.checks.session.call_site", lambda: "")
    (race,) = check(lambda: by_hand(word), kinds=["race"])
    assert sorted(each.site for each in race.accesses) != lines_of(by_hand, "MemsetNode(")
