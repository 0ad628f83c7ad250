"""Updates of executable graphs, through the real cuda.bindings."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import message, ok
from helpers.driver.graph_builder import (
    CODES,
    HOST_FUNCTION,
    GraphText,
    Words,
    code,
    copy_params,
    fill_params,
    native,
    run,
)

INVALID_VALUE = CODES.CUDA_ERROR_INVALID_VALUE
FAILURE = int(CODES.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)


class UpdateInfo(ctypes.Structure):
    """CUgraphExecUpdateResultInfo. On an error the bindings do not return it."""

    _fields_ = (("result", ctypes.c_int), ("node", ctypes.c_size_t), ("source", ctypes.c_size_t))


def update(executable, graph):
    """The code of an update, the name of its result, and the node that it stopped at."""
    library = ctypes.CDLL("libcuda.so.1")
    address, status, info = ctypes.c_void_p(), ctypes.c_int(), UpdateInfo()
    found = library.cuGetProcAddress_v2(
        b"cuGraphExecUpdate",
        ctypes.byref(address),
        12000,
        ctypes.c_uint64(0),
        ctypes.byref(status),
    )
    assert found == 0
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
    answer = prototype(address.value)(int(executable), int(graph), ctypes.addressof(info))
    name = driver.CUgraphExecUpdateResult(info.result).name
    return answer, name.removeprefix("CU_GRAPH_EXEC_UPDATE_"), info.node


def test_a_graph_of_the_same_shape_takes_the_place_of_another(graph, kernels, side):
    x, y = Words(4), Words(4)
    graph.mix(x, y, 1, [graph.set(x, 1), graph.fill(y, 2)])
    executable = graph.instantiate()
    other = GraphText(kernels)
    other.mix(x, y, 2, [other.set(x, 5), other.fill(y, 6)])
    assert update(executable, other.graph) == (0, "SUCCESS", 0)
    ok(driver.cuGraphDestroy(other.graph))
    run(executable, side)
    assert x.read() == [31 * (5 + i) + 12 + i for i in range(4)]


def test_a_kernel_may_become_another_one(graph, kernels, side):
    x = Words(4, 1)
    graph.set(x, 5)
    executable = graph.instantiate()
    other = GraphText(kernels)
    other.mix(x, x, 1)
    assert update(executable, other.graph)[0] == 0
    run(executable, side)
    assert x.read() == [32 + i for i in range(4)]


def test_what_differs_is_said_and_nothing_is_changed(graph, kernels, side):
    x, y = Words(4), Words(4)
    pinned = int(ok(driver.cuMemAllocHost(16)))
    first = graph.set(x, 1)
    graph.fill(y, 1, [first])
    executable = graph.instantiate()

    fewer = GraphText(kernels)
    fewer.set(x, 9)
    assert update(executable, fewer.graph) == (FAILURE, "ERROR_TOPOLOGY_CHANGED", 0)

    unordered = GraphText(kernels)
    unordered.set(x, 9)
    node = unordered.fill(y, 9)
    assert update(executable, unordered.graph) == (FAILURE, "ERROR_TOPOLOGY_CHANGED", int(node))

    retyped = GraphText(kernels)
    node = retyped.empty([retyped.set(x, 9)])
    assert update(executable, retyped.graph) == (FAILURE, "ERROR_NODE_TYPE_CHANGED", int(node))
    assert "type" in message(CODES(FAILURE))

    elsewhere = GraphText(kernels)
    params = fill_params(y, 9)
    params.dst = pinned
    before = [elsewhere.set(x, 9)]
    node = ok(driver.cuGraphAddMemsetNode(elsewhere.graph, before, 1, params, kernels.context))
    expected = (FAILURE, "ERROR_PARAMETERS_CHANGED", int(node))
    assert update(executable, elsewhere.graph) == expected

    run(executable, side)
    assert (x.read(), y.read()) == ([1, 2, 3, 4], [1] * 4)


@pytest.mark.parametrize(("rows", "allowed"), [(1, True), (2, False)])
def test_a_memset_of_one_row_may_become_shorter(graph, kernels, side, rows, allowed):
    x = Words(8)

    def fill(text, value, width):
        params = fill_params(x, value)
        params.width, params.height, params.pitch = width, rows, 16
        added = driver.cuGraphAddMemsetNode(text.graph, [], 0, params, kernels.context)
        return int(ok(added)), params

    node, _ = fill(graph, 1, 4)
    executable = graph.instantiate()
    other, shorter = GraphText(kernels), GraphText(kernels)
    fill(other, 2, 4)
    assert update(executable, other.graph) == (0, "SUCCESS", 0)
    twin, params = fill(shorter, 3, 2)
    expected = (0, "SUCCESS", 0) if allowed else (FAILURE, "ERROR_PARAMETERS_CHANGED", twin)
    assert update(executable, shorter.graph) == expected
    set_params = driver.cuGraphExecMemsetNodeSetParams
    node = driver.CUgraphNode(node)
    assert (code(set_params(executable, node, params, kernels.context)) == 0) == allowed
    params.width = 0
    assert code(set_params(executable, node, params, kernels.context)) == INVALID_VALUE
    run(executable, side)
    assert x.read() == ([3, 3, 0, 0] if allowed else [2, 2, 2, 2]) + [0 if allowed else 2] * 4


def test_a_copy_is_changed_alone_only_from_line_to_line(graph, kernels, side):
    x, y = Words(8, 1), Words(8)
    line = graph.copy(y, x, 16)
    rows = copy_params(y, x, 8)
    rows.Height, rows.srcPitch, rows.dstPitch = 2, 16, 16
    context = kernels.context
    box = ok(driver.cuGraphAddMemcpyNode(graph.graph, [line], 1, rows, context))
    executable = graph.instantiate()
    set_params = driver.cuGraphExecMemcpyNodeSetParams
    assert code(set_params(executable, line, rows, context)) == INVALID_VALUE
    assert code(set_params(executable, box, copy_params(y, x, 4), context)) == INVALID_VALUE
    assert code(set_params(executable, line, copy_params(y, x, 0), context)) == INVALID_VALUE
    ok(set_params(executable, line, copy_params(y, x, 4), context))
    run(executable, side)
    assert y.read() == [1, 1, 0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("flags", [0, 8])
def test_priorities_that_count_may_not_change(graph, kernels, flags):
    x = Words(4)
    name = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    graph.set(x, 1)
    executable = graph.instantiate(flags)
    other = GraphText(kernels)
    value = driver.CUkernelNodeAttrValue()
    value.priority = -1
    node = other.set(x, 1)
    ok(driver.cuGraphKernelNodeSetAttribute(node, name, value))
    expected = (FAILURE, "ERROR_ATTRIBUTES_CHANGED", int(node)) if flags else (0, "SUCCESS", 0)
    assert update(executable, other.graph) == expected


def test_single_nodes_of_an_executable_are_changed(graph, kernels, side):
    x, y, seen = Words(4), Words(4), []
    found = np.zeros(4, np.uint32)
    kernel, fill = graph.set(x, 1), graph.fill(y, 1)
    copy = graph.copy(found, x, 16, [kernel])
    function = HOST_FUNCTION(lambda value: seen.append(value))
    host = graph.host(function, [fill])
    executable = graph.instantiate()
    ok(driver.cuGraphExecKernelNodeSetParams(executable, kernel, kernels.set_params(x, 5)))
    context = kernels.context
    ok(driver.cuGraphExecMemsetNodeSetParams(executable, fill, fill_params(y, 6), context))
    params = copy_params(found, y, 8)
    ok(driver.cuGraphExecMemcpyNodeSetParams(executable, copy, params, context))
    params = driver.CUDA_HOST_NODE_PARAMS()
    params.fn, params.userData = native(function), 99
    ok(driver.cuGraphExecHostNodeSetParams(executable, host, params))
    run(executable, side)
    assert (x.read(), y.read()) == ([5, 6, 7, 8], [6] * 4)
    assert found[2:].tolist() == [0, 0]
    assert seen == [99]
    run(graph.instantiate(), side)
    assert (x.read(), found.tolist()) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_nodes_of_child_graphs_are_changed_alone_or_together(graph, kernels, side):
    x = Words(4)
    inner = GraphText(kernels)
    inner.set(x, 1)
    child = graph.child(inner.graph)
    executable = graph.instantiate()
    nodes, _ = ok(driver.cuGraphGetNodes(ok(driver.cuGraphChildGraphNodeGetGraph(child)), 1))
    ok(driver.cuGraphExecKernelNodeSetParams(executable, nodes[0], kernels.set_params(x, 5)))
    run(executable, side)
    assert x.read() == [5, 6, 7, 8]
    other = GraphText(kernels)
    other.set(x, 10)
    ok(driver.cuGraphExecChildGraphNodeSetParams(executable, child, other.graph))
    run(executable, side)
    assert x.read() == [10, 11, 12, 13]
    other.empty()
    refused = driver.cuGraphExecChildGraphNodeSetParams(executable, child, other.graph)
    assert code(refused) == INVALID_VALUE


def test_events_of_an_executable_are_changed(graph, side):
    a, b = (ok(driver.cuEventCreate(0)) for _ in range(2))
    recorded = graph.record(a)
    waited = graph.wait(a)
    executable = graph.instantiate()
    ok(driver.cuGraphExecEventRecordNodeSetEvent(executable, recorded, b))
    ok(driver.cuGraphExecEventWaitNodeSetEvent(executable, waited, b))
    run(executable, side)
    assert code(driver.cuEventElapsedTime(a, b)) != CODES.CUDA_SUCCESS
    assert ok(driver.cuEventElapsedTime(b, b)) == 0


def test_a_disabled_node_keeps_its_place_and_does_nothing(graph, side):
    x = Words(4)
    first = graph.set(x, 1)
    second = graph.mix(x, x, 0, [first])
    graph.mix(x, x, 1, [second])
    executable = graph.instantiate()
    assert ok(driver.cuGraphNodeGetEnabled(executable, second)) == 1
    ok(driver.cuGraphNodeSetEnabled(executable, second, 0))
    assert ok(driver.cuGraphNodeGetEnabled(executable, second)) == 0
    run(executable, side)
    assert x.read() == [32 * (1 + i) + i for i in range(4)]
    empty = graph.empty()
    assert code(driver.cuGraphNodeGetEnabled(graph.instantiate(), empty)) == INVALID_VALUE


def test_a_launch_keeps_what_it_was_launched_with(graph, kernels, side):
    x = Words(4)
    node = graph.set(x, 1)
    executable = graph.instantiate()
    ok(driver.cuGraphLaunch(executable, side))
    ok(driver.cuGraphExecKernelNodeSetParams(executable, node, kernels.set_params(x, 5)))
    ok(driver.cuStreamSynchronize(side))
    assert x.read() == [1, 2, 3, 4]


def test_foreign_nodes_and_other_types_are_refused(graph, kernels, side):
    x = Words(4)
    node, empty = graph.set(x, 1), graph.empty()
    executable = graph.instantiate()
    other = GraphText(kernels)
    foreign = other.set(x, 2)
    params = kernels.set_params(x, 3)
    set_params = driver.cuGraphExecKernelNodeSetParams
    assert code(set_params(executable, foreign, params)) == INVALID_VALUE
    assert code(set_params(executable, empty, params)) == INVALID_VALUE
    assert code(driver.cuGraphNodeSetEnabled(executable, foreign, 0)) == INVALID_VALUE
    ok(driver.cuGraphExecDestroy(executable))
    assert code(set_params(executable, node, params)) == INVALID_VALUE
    assert update(executable, graph.graph)[:2] == (int(INVALID_VALUE), "ERROR")


@pytest.mark.parametrize("copied", [False, True])
def test_attributes_of_a_kernel_node_are_kept(graph, copied):
    x = Words(4)
    node, other = graph.set(x, 1), graph.set(x, 2)
    value = driver.CUkernelNodeAttrValue()
    value.priority = -3
    name = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    ok(driver.cuGraphKernelNodeSetAttribute(node, name, value))
    if copied:
        ok(driver.cuGraphKernelNodeCopyAttributes(other, node))
    asked = other if copied else node
    ok(driver.cuGraphKernelNodeSetParams(asked, graph.kernels.set_params(x, 3)))
    assert ok(driver.cuGraphKernelNodeGetAttribute(asked, name)).priority == -3


def test_a_captured_cooperative_kernel_can_be_given_other_parameters(kernels, side):
    x = Words(4)
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ok(driver.cuStreamBeginCapture(side, mode))
    arguments = kernels.set_arguments(x, 1)
    launch = driver.cuLaunchCooperativeKernel
    ok(launch(kernels.set, 1, 1, 1, 4, 1, 1, 0, side, arguments))
    graph = ok(driver.cuStreamEndCapture(side))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    (node,), _ = ok(driver.cuGraphGetNodes(graph, 1))
    params = kernels.set_params(x, 5)
    ok(driver.cuGraphExecKernelNodeSetParams(executable, node, params))
    run(executable, side)
    assert x.read() == [5, 6, 7, 8]
