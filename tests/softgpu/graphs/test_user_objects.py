"""User objects: each graph, copy and executable with a reference keeps the object alive."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import cuda13, held, ok
from helpers.driver.graph_builder import CODES, HOST_FUNCTION, GraphText, code, native, nodes_of

INVALID_VALUE = CODES.CUDA_ERROR_INVALID_VALUE
MOVE = 1


class Objects:
    """User objects by number, and the numbers of those that have ended."""

    def __init__(self):
        self.ended = []
        self._destructor = HOST_FUNCTION(self.ended.append)

    def move_into(self, graph, number):
        """Create an object; its only reference belongs to the graph."""
        thing = ok(driver.cuUserObjectCreate(number, native(self._destructor), 1, 1))
        ok(driver.cuGraphRetainUserObject(graph, thing, 1, MOVE))
        return thing


@pytest.fixture
def objects():
    return Objects()


@pytest.fixture
def inner(kernels, objects):
    """A graph with one node and user object 1."""
    made = GraphText(kernels)
    made.empty()
    made.thing = objects.move_into(made.graph, 1)
    return made


@pytest.mark.parametrize("where", ["graph", "executable"])
def test_a_user_object_ends_with_the_last_that_refers_to_it(inner, side, objects, where):
    executable = inner.instantiate() if where == "executable" else None
    assert objects.ended == []
    ok(driver.cuGraphDestroy(inner.graph))
    if executable is not None:
        with held(side):
            ok(driver.cuGraphLaunch(executable, side))
            ok(driver.cuGraphExecDestroy(executable))
            assert objects.ended == []
        ok(driver.cuStreamSynchronize(side))
    assert objects.ended == [1]
    assert code(driver.cuUserObjectRelease(inner.thing, 1)) == INVALID_VALUE


# Graphs inside nodes


def nested(kernels, graph, levels):
    """A graph with a copy of `graph` nested `levels` deep, and its node. The other graphs end."""
    for _ in range(levels):
        outer = GraphText(kernels)
        node = outer.child(graph)
        ok(driver.cuGraphDestroy(graph))
        graph = outer.graph
    return graph, node


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("by", ["graph", "node"])
def test_a_copy_inside_of_a_node_has_references_of_its_own(kernels, inner, objects, levels, by):
    outer, node = nested(kernels, inner.graph, levels)
    assert objects.ended == []
    ok(driver.cuGraphDestroy(outer) if by == "graph" else driver.cuGraphDestroyNode(node))
    assert objects.ended == [1]


def test_a_copy_inside_of_a_node_can_release_its_reference(graph, inner, objects):
    clone = ok(driver.cuGraphChildGraphNodeGetGraph(graph.child(inner.graph)))
    assert code(driver.cuGraphReleaseUserObject(clone, inner.thing, 2)) == INVALID_VALUE
    ok(driver.cuGraphReleaseUserObject(clone, inner.thing, 1))
    assert code(driver.cuGraphReleaseUserObject(clone, inner.thing, 1)) == INVALID_VALUE
    ok(driver.cuGraphDestroy(inner.graph))
    assert objects.ended == [1]


def test_clones_and_executables_hold_what_is_inside(graph, inner, objects):
    graph.child(inner.graph)
    clone = ok(driver.cuGraphClone(graph.graph))
    executable = graph.instantiate()
    ok(driver.cuGraphDestroy(inner.graph))
    ok(driver.cuGraphDestroy(graph.graph))
    ok(driver.cuGraphDestroy(clone))
    assert objects.ended == []
    ok(driver.cuGraphExecDestroy(executable))
    assert objects.ended == [1]


def test_a_child_that_is_refused_keeps_nothing_alive(graph, inner, objects):
    stranger = nodes_of(inner.graph)[0]
    refused = driver.cuGraphAddChildGraphNode(graph.graph, [stranger], 1, inner.graph)
    assert code(refused) == INVALID_VALUE
    ok(driver.cuGraphDestroy(inner.graph))
    assert objects.ended == [1]


def test_an_executable_that_is_refused_keeps_nothing_alive(inner, objects):
    first, second = nodes_of(inner.graph)[0], inner.empty()
    for pair in ((first, second), (second, first)):
        ok(cuda13.cuGraphAddDependencies(inner.graph, [pair[0]], [pair[1]], None, 1))
    assert code(driver.cuGraphInstantiate(inner.graph, 0)) == INVALID_VALUE
    ok(driver.cuGraphDestroy(inner.graph))
    assert objects.ended == [1]


def test_the_body_of_a_conditional_node_releases_with_the_node(graph, objects, context):
    handle = ok(driver.cuGraphConditionalHandleCreate(graph.graph, context, 0, 0))
    params = driver.CUgraphNodeParams()
    params.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = handle
    params.conditional.type = driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
    params.conditional.size, params.conditional.ctx = 1, context
    node = ok(cuda13.cuGraphAddNode(graph.graph, None, None, 0, params))
    objects.move_into(params.conditional.phGraph_out[0], 5)
    ok(driver.cuGraphDestroyNode(node))
    assert objects.ended == [5]


def test_what_a_capture_retained_is_released_when_it_fails(side, other, objects):
    ok(driver.cuStreamBeginCapture(side, driver.CUstreamCaptureMode(2)))
    captured = ok(cuda13.cuStreamGetCaptureInfo(side))[2]
    objects.move_into(captured, 3)
    event = ok(driver.cuEventCreate(2))
    ok(driver.cuEventRecord(event, side))
    ok(driver.cuStreamWaitEvent(other, event, 0))
    ok(driver.cuLaunchHostFunc(other, native(HOST_FUNCTION(print)), 0))
    assert code(driver.cuStreamEndCapture(side)) == CODES.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    assert objects.ended == [3]


# Updates


@pytest.fixture
def newer(kernels, objects):
    """A graph like `inner`, with user object 2."""
    made = GraphText(kernels)
    made.empty()
    objects.move_into(made.graph, 2)
    return made


def update(executable, graph):
    ok(driver.cuGraphExecUpdate(executable, graph))


def test_an_update_exchanges_references(inner, newer, objects):
    executable = inner.instantiate()
    ok(driver.cuGraphDestroy(inner.graph))
    for _ in range(2):
        update(executable, newer.graph)
        assert objects.ended == [1]
    ok(driver.cuGraphDestroy(newer.graph))
    assert objects.ended == [1]
    ok(driver.cuGraphExecDestroy(executable))
    assert objects.ended == [1, 2]


def test_an_update_exchanges_references_of_children(kernels, inner, newer, objects):
    olds, news = GraphText(kernels), GraphText(kernels)
    olds.child(inner.graph)
    news.child(newer.graph)
    executable = olds.instantiate()
    for text in (inner, olds):
        ok(driver.cuGraphDestroy(text.graph))
    update(executable, news.graph)
    assert objects.ended == [1]
    for text in (newer, news):
        ok(driver.cuGraphDestroy(text.graph))
    assert objects.ended == [1]
    ok(driver.cuGraphExecDestroy(executable))
    assert objects.ended == [1, 2]


def test_a_child_of_an_executable_exchanges_its_references_alone(graph, inner, newer, objects):
    objects.move_into(graph.graph, 7)
    node = graph.child(inner.graph)
    executable = graph.instantiate()
    ok(driver.cuGraphDestroy(inner.graph))
    ok(driver.cuGraphExecChildGraphNodeSetParams(executable, node, newer.graph))
    ok(driver.cuGraphDestroy(graph.graph))
    assert objects.ended == [1]
    ok(driver.cuGraphDestroy(newer.graph))
    ok(driver.cuGraphExecDestroy(executable))
    assert sorted(objects.ended) == [1, 2, 7]


def test_a_refused_update_changes_no_references(inner, newer, objects):
    executable = inner.instantiate()
    ok(driver.cuGraphDestroy(inner.graph))
    newer.empty()
    assert code(driver.cuGraphExecUpdate(executable, newer.graph)) != CODES.CUDA_SUCCESS
    ok(driver.cuGraphDestroy(newer.graph))
    assert objects.ended == [2]
    ok(driver.cuGraphExecDestroy(executable))
    assert objects.ended == [2, 1]


def test_what_an_update_replaces_outlives_the_launch_before(inner, newer, side, objects):
    executable = inner.instantiate()
    ok(driver.cuGraphDestroy(inner.graph))
    with held(side):
        ok(driver.cuGraphLaunch(executable, side))
        update(executable, newer.graph)
        assert objects.ended == []
    ok(driver.cuStreamSynchronize(side))
    assert objects.ended == [1]
    ok(driver.cuGraphExecDestroy(executable))


# Launches that never end, because their context ends


@pytest.fixture
def end(context, kernels, other):
    """End the context with all waiting work: `destroyed`, or `failed` by a fault."""

    def end_by(how):
        if how == "destroyed":
            ok(driver.cuCtxDestroy(context))
        else:
            wild = ((8, 1, 1), (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint))
            ok(driver.cuLaunchKernel(kernels.set, 1, 1, 1, 1, 1, 1, 0, other, wild, 0))
            assert code(driver.cuStreamSynchronize(other)) == CODES.CUDA_ERROR_ILLEGAL_ADDRESS
            # The next call cleans up after the fault.
            assert code(driver.cuStreamQuery(other)) == CODES.CUDA_ERROR_ILLEGAL_ADDRESS

    return end_by


@pytest.fixture
def never(side):
    """A stream with work that never ends."""
    word = ok(driver.cuMemAlloc(4))
    ok(driver.cuMemsetD32(word, 0, 1))
    ok(driver.cuStreamWaitValue32(side, word, 1, 0))
    return side


@pytest.mark.parametrize("how", ["destroyed", "failed"])
@pytest.mark.parametrize("is_first", [False, True], ids=["context last", "context first"])
def test_a_launch_that_is_dropped_keeps_no_user_object(inner, never, objects, end, how, is_first):
    """If the executable was destroyed before, no other owner is left to release the object."""
    executable = inner.instantiate()
    ok(driver.cuGraphDestroy(inner.graph))
    for _ in range(2):
        ok(driver.cuGraphLaunch(executable, never))
    if is_first:
        end(how)
        assert objects.ended == []
    ok(driver.cuGraphExecDestroy(executable))
    if not is_first:
        assert objects.ended == []
        end(how)
    assert objects.ended == [1]


@pytest.mark.parametrize("how", ["destroyed", "failed"])
def test_a_launch_that_is_dropped_keeps_nothing_that_an_update_replaced(
    inner, newer, never, objects, end, how
):
    executable = inner.instantiate()
    ok(driver.cuGraphDestroy(inner.graph))
    ok(driver.cuGraphLaunch(executable, never))
    update(executable, newer.graph)
    assert objects.ended == []
    end(how)
    assert objects.ended == [1]
    ok(driver.cuGraphDestroy(newer.graph))
    ok(driver.cuGraphExecDestroy(executable))
    assert objects.ended == [1, 2]
