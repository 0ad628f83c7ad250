"""Graphs built node by node, through the real cuda.bindings."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import IS_CUDA_12, cuda13, held, message, ok
from helpers.driver.graph_builder import (
    CODES,
    HOST_FUNCTION,
    POINTER,
    PTX,
    UNSIGNED,
    GraphText,
    Words,
    code,
    copy_params,
    edges_of,
    fill_params,
    kinds_of,
    nodes_of,
    run,
)

INVALID_VALUE = CODES.CUDA_ERROR_INVALID_VALUE


def test_nodes_run_in_the_order_of_their_edges(graph, side):
    x, y = Words(40), Words(40)
    found = np.zeros(40, np.uint32)
    both = [graph.set(x, 5), graph.fill(y, 7)]
    mixed = graph.mix(x, y, 2, both)
    graph.copy(found, x, x.bytes, [mixed])
    run(graph.instantiate(), side)
    assert found.tolist() == [31 * (5 + i) + 14 + i for i in range(40)]


def test_an_executable_outlives_its_graph_and_runs_as_often_as_it_is_launched(graph, side):
    x = Words(4, 1)
    graph.mix(x, x, 0)
    executable = graph.instantiate()
    ok(driver.cuGraphDestroy(graph.graph))
    run(executable, side, times=3)
    expected = np.ones(4, np.uint32)
    for _ in range(3):
        expected = expected * 31 + np.arange(4, dtype=np.uint32)
    assert x.read() == expected.tolist()
    ok(driver.cuGraphExecDestroy(executable))
    assert code(driver.cuGraphLaunch(executable, side)) == INVALID_VALUE
    assert code(driver.cuGraphExecDestroy(executable)) == INVALID_VALUE


def test_what_is_done_to_a_graph_does_not_reach_its_executables(graph, side):
    x = Words(4)
    graph.set(x, 1)
    executable = graph.instantiate()
    graph.fill(x, 9, nodes_of(graph.graph))
    run(executable, side)
    assert x.read() == [1, 2, 3, 4]


def test_a_launch_is_in_the_order_of_its_stream(graph, side):
    x = Words(4)
    graph.mix(x, x, 0)
    executable = graph.instantiate()
    graph.kernels.launch_set(side, x, 2)
    ok(driver.cuGraphLaunch(executable, side))
    graph.kernels.launch_mix(side, x, x, 1)
    ok(driver.cuStreamSynchronize(side))
    expected = [2 + i for i in range(4)]
    expected = [31 * v + i for i, v in enumerate(expected)]
    assert x.read() == [32 * v + i for i, v in enumerate(expected)]


def test_launches_of_one_executable_on_two_streams_do_not_overlap(graph, side):
    x, y = Words(4, 1), Words(4)
    graph.mix(y, x, 1, [graph.mix(x, y, 1)])
    executable = graph.instantiate()
    other = ok(driver.cuStreamCreate(1))
    for stream in (side, other, side, other):
        ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuCtxSynchronize())
    index = np.arange(4, dtype=np.uint32)
    a, b = np.ones(4, np.uint32), np.zeros(4, np.uint32)
    for _ in range(4):
        a = a * 31 + b + index
        b = b * 31 + a + index
    assert x.read() == a.tolist()
    assert y.read() == b.tolist()


def test_host_functions_are_called_with_their_data(graph, side):
    seen = []
    function = HOST_FUNCTION(seen.append)
    first = graph.host(function)
    graph.host(function, [graph.empty([first])])
    run(graph.instantiate(), side, times=2)
    assert seen == [7] * 4
    params = ok(driver.cuGraphHostNodeGetParams(first))
    assert int(params.fn) == ctypes.cast(function, ctypes.c_void_p).value


def test_a_child_graph_is_a_copy_that_can_be_looked_into(graph, side):
    x, y = Words(4), Words(4)
    inner = GraphText(graph.kernels)
    inner.mix(y, x, 1, [inner.set(y, 1)])
    child = graph.child(inner.graph, [graph.set(x, 10)])
    graph.mix(x, y, 1, [child])
    inside = ok(driver.cuGraphChildGraphNodeGetGraph(child))
    assert kinds_of(inside) == ["KERNEL", "KERNEL"]
    twin = ok(driver.cuGraphNodeFindInClone(nodes_of(inner.graph)[0], inside))
    assert int(twin) == int(nodes_of(inside)[0])
    ok(driver.cuGraphDestroy(inner.graph))
    assert code(driver.cuGraphDestroy(inside)) == INVALID_VALUE
    run(graph.instantiate(), side)
    index = np.arange(4)
    b = 31 * (1 + index) + 10 + index + index
    assert y.read() == b.tolist()
    assert x.read() == (31 * (10 + index) + b + index).tolist()


def test_event_nodes_order_launches_with_streams(graph, side):
    x, y = Words(4), Words(4)
    done, begun = ok(driver.cuEventCreate(2)), ok(driver.cuEventCreate(2))
    waited = graph.wait(begun)
    graph.record(done, [graph.mix(x, y, 1, [waited])])
    graph.fill(y, 0, [waited])
    executable = graph.instantiate()
    other = ok(driver.cuStreamCreate(1))
    graph.kernels.launch_set(other, x, 3)
    ok(driver.cuEventRecord(begun, other))
    ok(driver.cuGraphLaunch(executable, side))
    ok(driver.cuStreamWaitEvent(other, done, 0))
    graph.kernels.launch_mix(other, x, x, 1)
    ok(driver.cuStreamSynchronize(other))
    ok(driver.cuEventSynchronize(done))
    expected = [31 * (3 + i) + i for i in range(4)]
    assert x.read() == [32 * v + i for i, v in enumerate(expected)]
    assert int(ok(driver.cuGraphEventRecordNodeGetEvent(nodes_of(graph.graph)[2]))) == int(done)


def test_pageable_memory_is_read_when_a_copy_node_runs(graph, side):
    x = Words(4)
    source = np.arange(4, dtype=np.uint32)
    graph.copy(x, source, 16)
    executable = graph.instantiate()
    source += 10
    with held(side):
        ok(driver.cuGraphLaunch(executable, side))
        source += 10
    ok(driver.cuStreamSynchronize(side))
    assert x.read() == [20, 21, 22, 23]


def test_boxes_are_copied_slice_by_slice(graph, side):
    pitch, height = 8, 4
    source = np.arange(3 * height * pitch, dtype=np.uint8).reshape(3, height, pitch)
    x = Words(24)
    what = copy_params(x, source, 0)
    what.srcPitch, what.srcHeight, what.srcXInBytes, what.srcY, what.srcZ = pitch, height, 2, 1, 1
    what.WidthInBytes, what.Height, what.Depth = 4, 3, 2
    what.dstPitch, what.dstHeight = 4, 3
    context = graph.kernels.context
    node = ok(driver.cuGraphAddMemcpyNode(graph.graph, [], 0, what, context))
    run(graph.instantiate(), side)
    found = np.array(x.read()[:6], np.uint32).view(np.uint8).reshape(2, 3, 4)
    assert (found == source[1:3, 1:4, 2:6]).all()
    back = ok(driver.cuGraphMemcpyNodeGetParams(node))
    assert (back.WidthInBytes, back.Depth, back.srcPitch, int(back.dstDevice)) == (
        4,
        2,
        pitch,
        x.address,
    )


def test_nodes_and_edges_are_told(graph):
    a, b = graph.empty(), graph.empty()
    c = graph.empty([a, b])
    assert [int(n) for n in nodes_of(graph.graph)] == [int(n) for n in (a, b, c)]
    assert edges_of(graph.graph) == [(int(a), int(c)), (int(b), int(c))]
    roots, count = ok(driver.cuGraphGetRootNodes(graph.graph, 8))
    assert [int(n) for n in roots[:count]] == [int(a), int(b)]
    nodes, _, count = ok(cuda13.cuGraphNodeGetDependencies(c, 8))
    assert [int(n) for n in nodes[:count]] == [int(a), int(b)]
    nodes, _, count = ok(cuda13.cuGraphNodeGetDependentNodes(a, 8))
    assert [int(n) for n in nodes[:count]] == [int(c)]
    ok(cuda13.cuGraphRemoveDependencies(graph.graph, [a], [c], [driver.CUgraphEdgeData()], 1))
    assert edges_of(graph.graph) == [(int(b), int(c))]
    ok(driver.cuGraphDestroyNode(b))
    assert edges_of(graph.graph) == []
    assert code(driver.cuGraphDestroyNode(b)) == INVALID_VALUE


def test_a_programmatic_edge_is_for_kernels_and_keeps_its_data(graph, side):
    x = Words(4)
    a, b, c = graph.set(x, 1), graph.mix(x, x, 0), graph.empty()
    edge = driver.CUgraphEdgeData()
    edge.type, edge.from_port = 1, 1
    refused = cuda13.cuGraphAddDependencies(graph.graph, [b], [c], [edge], 1)
    assert code(refused) == INVALID_VALUE
    ok(cuda13.cuGraphAddDependencies(graph.graph, [a], [b], [edge], 1))
    plain = driver.CUgraphEdgeData()
    refused = cuda13.cuGraphRemoveDependencies(graph.graph, [a], [b], [plain], 1)
    assert code(refused) == INVALID_VALUE
    run(graph.instantiate(), side)
    assert x.read() == [31 * (1 + i) + i for i in range(4)]
    ok(cuda13.cuGraphRemoveDependencies(graph.graph, [a], [b], [edge], 1))
    assert edges_of(graph.graph) == []


@pytest.mark.skipif(IS_CUDA_12, reason="these bindings give it in memory that they have freed")
def test_the_data_of_an_edge_is_told(graph):
    x = Words(4)
    a, b = graph.set(x, 1), graph.mix(x, x, 0)
    edge = driver.CUgraphEdgeData()
    edge.type, edge.from_port = 1, 1
    ok(driver.cuGraphAddDependencies(graph.graph, [a], [b], [edge], 1))
    _, _, data, _ = ok(driver.cuGraphGetEdges(graph.graph, 1))
    assert (data[0].type, data[0].from_port, data[0].to_port) == (1, 1, 0)


def test_a_cycle_is_found_when_the_graph_is_instantiated(graph):
    a = graph.empty()
    b = graph.empty([a])
    plain = [driver.CUgraphEdgeData()]
    ok(cuda13.cuGraphAddDependencies(graph.graph, [b], [a], plain, 1))
    assert code(driver.cuGraphInstantiate(graph.graph, 0)) == INVALID_VALUE
    assert "cycle" in message(INVALID_VALUE)
    params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
    assert code(driver.cuGraphInstantiateWithParams(graph.graph, params)) == INVALID_VALUE
    assert params.result_out.name == "CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE"
    assert code(cuda13.cuGraphAddDependencies(graph.graph, [a], [b], plain, 1)) == INVALID_VALUE
    assert code(cuda13.cuGraphAddDependencies(graph.graph, [a], [a], plain, 1)) == INVALID_VALUE


def test_a_clone_knows_its_nodes_and_goes_its_own_way(graph, side):
    x = Words(4)
    node = graph.set(x, 1)
    clone = ok(driver.cuGraphClone(graph.graph))
    twin = ok(driver.cuGraphNodeFindInClone(node, clone))
    assert int(twin) != int(node)
    ok(driver.cuGraphKernelNodeSetParams(node, graph.kernels.set_params(x, 50)))
    run(ok(driver.cuGraphInstantiate(clone, 0)), side)
    assert x.read() == [1, 2, 3, 4]
    assert code(driver.cuGraphNodeFindInClone(twin, graph.graph)) == INVALID_VALUE


def test_parameters_are_given_back_as_they_were_set(graph, side):
    x = Words(40)
    node, filled = graph.set(x, 1), graph.fill(x, 3)
    params = ok(driver.cuGraphKernelNodeGetParams(node))
    assert (int(params.func), params.gridDimX, params.blockDimX) == (
        int(graph.kernels.set),
        2,
        32,
    )
    pointers = ctypes.cast(int(params.kernelParams), ctypes.POINTER(ctypes.c_void_p))
    assert ctypes.c_int32.from_address(pointers[1]).value == 1
    # The driver accepts the parameters that it returned.
    ok(driver.cuGraphKernelNodeSetParams(node, params))
    found = ok(driver.cuGraphMemsetNodeGetParams(filled))
    assert (int(found.dst), found.value, found.elementSize, found.width) == (x.address, 3, 4, 40)
    ok(driver.cuGraphMemsetNodeSetParams(filled, fill_params(x, 8)))
    ok(driver.cuGraphDestroyNode(node))
    run(graph.instantiate(), side)
    assert x.read() == [8] * 40


def test_a_kernel_of_a_library_is_told_as_one(graph, side):
    x = Words(4)
    library = ok(driver.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    kernel = ok(driver.cuLibraryGetKernel(library, b"set"))
    params = graph.kernels.set_params(x, 5)
    params.func, params.kern, params.ctx = None, kernel, graph.kernels.context
    found = ok(driver.cuGraphKernelNodeGetParams(graph.kernel(params)))
    assert (int(found.kern), int(found.ctx)) == (int(kernel), int(graph.kernels.context))
    run(graph.instantiate(), side)
    assert x.read() == [5, 6, 7, 8]


def test_a_node_of_any_type_can_be_described_in_one_structure(graph, side):
    x, y = Words(4), Words(4)
    kind = driver.CUgraphNodeType
    launch = driver.CUgraphNodeParams()
    launch.type = kind.CU_GRAPH_NODE_TYPE_KERNEL
    launch.kernel.func = graph.kernels.set
    for axis in "XYZ":
        setattr(launch.kernel, f"gridDim{axis}", 1)
        setattr(launch.kernel, f"blockDim{axis}", 4 if axis == "X" else 1)
    launch.kernel.kernelParams = graph.kernels.set_arguments(x, 5)
    first = ok(cuda13.cuGraphAddNode(graph.graph, [], [], 0, launch))
    copy = driver.CUgraphNodeParams()
    copy.type = kind.CU_GRAPH_NODE_TYPE_MEMCPY
    copy.memcpy.copyParams = copy_params(y, x, 16)
    copy.memcpy.copyCtx = graph.kernels.context
    ok(cuda13.cuGraphAddNode(graph.graph, [first], [driver.CUgraphEdgeData()], 1, copy))
    run(graph.instantiate(), side)
    assert y.read() == [5, 6, 7, 8]
    copy.type = kind.CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT
    refused = cuda13.cuGraphAddNode(graph.graph, [], [], 0, copy)
    assert code(refused) == CODES.CUDA_ERROR_NOT_SUPPORTED


def test_a_graph_is_drawn(graph, tmp_path):
    x = Words(4)
    inner = GraphText(graph.kernels)
    inner.fill(x, 3)
    graph.child(inner.graph, [graph.set(x, 1)])
    path = tmp_path / "graph.dot"
    ok(driver.cuGraphDebugDotPrint(graph.graph, str(path).encode(), 1))
    text = path.read_text()
    assert text.startswith("digraph")
    assert "kernel set" in text
    assert "MEMSET" in text
    assert text.count("->") == 1
    nowhere = str(tmp_path / "no" / "such").encode()
    assert code(driver.cuGraphDebugDotPrint(graph.graph, nowhere, 0)) != CODES.CUDA_SUCCESS


def test_misuse_has_its_error(graph, side):
    x = Words(4)
    other = GraphText(graph.kernels)
    foreign, own = other.empty(), graph.empty()
    graph_id, add = graph.graph, driver.cuGraphAddEmptyNode
    assert code(add(graph_id, [foreign], 1)) == INVALID_VALUE
    assert code(add(graph_id, [own, own], 2)) == INVALID_VALUE
    assert code(driver.cuGraphKernelNodeGetParams(own)) == INVALID_VALUE
    assert code(driver.cuGraphCreate(1)) == INVALID_VALUE
    assert code(driver.cuGraphInstantiate(graph_id, 1 << 9)) == INVALID_VALUE
    assert code(driver.cuGraphLaunch(driver.CUgraphExec(int(graph_id)), side)) == INVALID_VALUE
    wild = fill_params(x, 1)
    wild.width = 5
    context = graph.kernels.context
    assert code(driver.cuGraphAddMemsetNode(graph_id, [], 0, wild, context)) == INVALID_VALUE
    too_many = graph.kernels.set_params(x, 1)
    too_many.blockDimX = 2000
    assert code(driver.cuGraphAddKernelNode(graph_id, [], 0, too_many)) == INVALID_VALUE
    nothing = driver.CUDA_KERNEL_NODE_PARAMS()
    assert code(driver.cuGraphAddKernelNode(graph_id, [], 0, nothing)) != CODES.CUDA_SUCCESS
    assert kinds_of(graph_id) == ["EMPTY"]
    ok(driver.cuGraphDestroy(graph_id))
    assert code(driver.cuGraphDestroy(graph_id)) == INVALID_VALUE
    assert code(driver.cuGraphDestroyNode(own)) == INVALID_VALUE


def test_a_fault_in_a_graph_is_the_faults_error_and_drops_the_rest(graph, side):
    x = Words(4)
    missing = x.address + (1 << 30)
    wild = graph.kernels.params(
        graph.kernels.set, ((missing, 1, 4), (POINTER, ctypes.c_int32, UNSIGNED)), 4
    )
    seen = []
    graph.host(HOST_FUNCTION(seen.append), [graph.kernel(wild)])
    executable = graph.instantiate()
    ok(driver.cuGraphLaunch(executable, side))
    illegal = CODES.CUDA_ERROR_ILLEGAL_ADDRESS
    assert code(driver.cuStreamSynchronize(side)) == illegal
    assert seen == []
    assert code(driver.cuGraphLaunch(executable, side)) == illegal
