"""Graphs that allocate and free memory, wait for words, and write words."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import IS_CUDA_12, create_context, cuda13, held, message, ok
from helpers.driver.graph_builder import CODES, GraphText, Words, code, kinds_of, nodes_of, run

INVALID_VALUE = CODES.CUDA_ERROR_INVALID_VALUE
AUTO_FREE = 1
GLOBAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
USED, HIGH, RESERVED, RESERVED_HIGH = driver.CUgraphMem_attribute
POINTER = driver.CUpointer_attribute


class Fixed:
    """Memory of a graph, with the attributes that kernel nodes need."""

    def __init__(self, address, count):
        self.address, self.count, self.bytes = address, count, 4 * count


def allocate(graph, count, after=()):
    """Add a node that allocates words; return the node and the words."""
    params = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.poolProps.location.id = 0
    params.bytesize = 4 * count
    node = ok(driver.cuGraphAddMemAllocNode(graph.graph, list(after), len(after), params))
    return node, Fixed(int(params.dptr), count)


def free(graph, words, after):
    return ok(driver.cuGraphAddMemFreeNode(graph.graph, after, len(after), words.address))


def in_use(attribute=USED):
    return int(ok(driver.cuDeviceGetGraphMemAttribute(0, attribute)))


def numbers():
    return [in_use(attribute) for attribute in (USED, HIGH, RESERVED, RESERVED_HIGH)]


def test_memory_has_a_fixed_address_and_lives_between_its_nodes(graph, side):
    out = Words(4)
    made, words = allocate(graph, 4)
    filled = graph.set(words, 5, [made])
    copied = graph.copy(out, words, 16, [filled])
    ended = free(graph, words, [copied])
    assert kinds_of(graph.graph) == ["MEM_ALLOC", "KERNEL", "MEMCPY", "MEM_FREE"]
    assert int(ok(driver.cuGraphMemFreeNodeGetParams(ended))) == words.address
    found = ok(driver.cuGraphMemAllocNodeGetParams(made))
    assert (int(found.dptr), found.bytesize) == (words.address, 16)
    run(graph.instantiate(), side, times=3)
    assert out.read() == [5, 6, 7, 8]
    assert code(driver.cuMemFree(words.address)) == INVALID_VALUE


def test_memory_that_a_graph_leaves_is_the_programs_to_free(graph, side):
    made, words = allocate(graph, 4)
    graph.set(words, 5, [made])
    executable = graph.instantiate()
    before = in_use()
    run(executable, side)
    assert in_use() == before + 16
    out = np.zeros(4, np.uint32)
    ok(driver.cuMemcpyDtoH(out.ctypes.data, words.address, 16))
    assert out.tolist() == [5, 6, 7, 8]
    assert code(driver.cuGraphLaunch(executable, side)) == INVALID_VALUE
    assert "free it before the next launch" in message(INVALID_VALUE)
    ok(driver.cuMemFreeAsync(words.address, side))
    run(executable, side)
    ok(driver.cuMemFree(words.address))
    assert code(driver.cuMemFree(words.address)) == INVALID_VALUE
    ok(driver.cuDeviceGraphMemTrim(0))
    assert in_use() == before


def test_an_executable_may_free_by_itself_what_it_left(graph, side):
    _, words = allocate(graph, 4)
    executable = graph.instantiate(AUTO_FREE)
    assert int(ok(driver.cuGraphExecGetFlags(executable))) == AUTO_FREE
    ok(driver.cuDeviceGraphMemTrim(0))
    before = in_use()
    run(executable, side, times=3)
    assert in_use() == before + 16
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph.graph))
    ok(driver.cuMemFree(words.address))
    ok(driver.cuDeviceGraphMemTrim(0))
    assert in_use() == before


def test_using_memory_before_it_is_there_is_a_fault(graph, side):
    _, words = allocate(graph, 4)
    other = GraphText(graph.kernels)
    other.set(words, 5)
    ok(driver.cuGraphLaunch(other.instantiate(), side))
    assert code(driver.cuStreamSynchronize(side)) == CODES.CUDA_ERROR_ILLEGAL_ADDRESS


def test_stream_ordered_memory_is_captured(kernels, side):
    out = Words(4)
    ok(driver.cuStreamBeginCapture(side, GLOBAL))
    address = int(ok(driver.cuMemAllocAsync(16, side)))
    kernels.launch_set(side, Fixed(address, 4), 3)
    ok(driver.cuMemcpyDtoDAsync(out.address, address, 16, side))
    ok(driver.cuMemFreeAsync(address, side))
    assert code(driver.cuMemFreeAsync(out.address, side)) == INVALID_VALUE
    graph = ok(driver.cuStreamEndCapture(side))
    assert kinds_of(graph) == ["MEM_ALLOC", "KERNEL", "MEMCPY", "MEM_FREE"]
    run(ok(driver.cuGraphInstantiate(graph, 0)), side, times=2)
    assert out.read() == [3, 4, 5, 6]


def test_a_graph_with_memory_nodes_is_neither_copied_nor_taken_apart(graph, side):
    made, words = allocate(graph, 4)
    ended = free(graph, words, [made])
    outer = GraphText(graph.kernels)
    plain = [driver.CUgraphEdgeData()]
    for refused in (
        driver.cuGraphClone(graph.graph),
        driver.cuGraphAddChildGraphNode(outer.graph, [], 0, graph.graph),
        driver.cuGraphDestroyNode(ended),
        cuda13.cuGraphRemoveDependencies(graph.graph, [made], [ended], plain, 1),
        driver.cuGraphAddMemFreeNode(graph.graph, [made], 1, words.address),
        driver.cuGraphAddMemFreeNode(graph.graph, [made], 1, words.address + 4),
    ):
        assert code(refused) == INVALID_VALUE
    executable = graph.instantiate()
    assert code(driver.cuGraphInstantiate(graph.graph, 0)) == INVALID_VALUE
    ok(driver.cuGraphExecDestroy(executable))
    graph.instantiate()


def test_a_child_graph_that_is_moved_may_have_memory_nodes(graph, side):
    inner = GraphText(graph.kernels)
    out = Words(4)
    made, words = allocate(inner, 4)
    inner.copy(out, words, 16, [inner.set(words, 2, [made])])
    params = driver.CUgraphNodeParams()
    params.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
    params.graph.graph = inner.graph
    try:
        owner = driver.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
    except AttributeError:
        pytest.skip("these bindings have no such ownership")
    params.graph.ownership = owner
    node = ok(cuda13.cuGraphAddNode(graph.graph, [], None, 0, params))
    assert int(ok(driver.cuGraphChildGraphNodeGetGraph(node))) == int(inner.graph)
    assert code(driver.cuGraphDestroy(inner.graph)) == INVALID_VALUE
    run(graph.instantiate(AUTO_FREE), side, times=2)
    assert out.read() == [2, 3, 4, 5]


def test_what_a_launch_needs_is_in_use_at_once_and_until_it_is_trimmed(graph, side):
    ok(driver.cuDeviceGraphMemTrim(0))
    before = numbers()
    made, words = allocate(graph, 1024)
    free(graph, words, [made])
    executable = graph.instantiate()
    assert numbers() == before
    with held(side):
        ok(driver.cuGraphLaunch(executable, side))
        launched = numbers()
        assert launched[0] == before[0] + 4096
        assert launched[1] >= launched[0] <= launched[2] <= launched[3]
        ok(driver.cuDeviceGraphMemTrim(0))
        assert numbers() == launched
    ok(driver.cuStreamSynchronize(side))
    assert numbers() == launched
    ok(driver.cuDeviceGraphMemTrim(0))
    assert in_use() == in_use(RESERVED) == before[0]
    run(executable, side)
    assert in_use() == before[0] + 4096
    ok(driver.cuGraphExecDestroy(executable))
    assert (in_use(), in_use(RESERVED)) == (before[0], before[0] + 4096)
    ok(driver.cuDeviceGraphMemTrim(0))
    assert in_use(RESERVED) == before[0]


def test_high_water_marks_are_set_back(graph, side):
    made, words = allocate(graph, 1024)
    free(graph, words, [made])
    run(graph.instantiate(), side)
    ok(driver.cuDeviceGraphMemTrim(0))
    for mark, now in ((HIGH, USED), (RESERVED_HIGH, RESERVED)):
        assert in_use(mark) >= in_use(now) + 4096
        ok(driver.cuDeviceSetGraphMemAttribute(0, mark, driver.cuuint64_t(0)))
        assert in_use(mark) == in_use(now)


def test_memory_that_a_program_has_is_not_trimmed(graph, side):
    before = in_use()
    _, words = allocate(graph, 1024)
    run(graph.instantiate(), side)
    ok(driver.cuDeviceGraphMemTrim(0))
    assert in_use() == before + 4096
    ok(driver.cuMemFree(words.address))
    ok(driver.cuDeviceGraphMemTrim(0))
    assert in_use() == before


def test_what_outlives_its_executable_is_in_use_until_it_is_trimmed_or_taken_again(kernels, side):
    ok(driver.cuDeviceGraphMemTrim(0))
    before = in_use()
    for freed in (driver.cuMemFree, lambda address: driver.cuMemFreeAsync(address, side)):
        for count, most in ((1024, 1024), (256, 1024), (2048, 2048)):
            graph = GraphText(kernels)
            _, words = allocate(graph, count)
            executable = graph.instantiate()
            run(executable, side)
            ok(driver.cuGraphExecDestroy(executable))
            ok(driver.cuGraphDestroy(graph.graph))
            assert in_use() == before + 4 * most
            ok(freed(words.address))
            ok(driver.cuStreamSynchronize(side))
            assert in_use() == before + 4 * most
        ok(driver.cuDeviceGraphMemTrim(0))
        assert in_use() == in_use(RESERVED) == before


@pytest.mark.parametrize("mode", list(driver.CUstreamCaptureMode))
def test_no_bytes_are_captured_as_memory_with_an_address(side, mode):
    ok(driver.cuStreamBeginCapture(side, mode))
    address = ok(driver.cuMemAllocAsync(0, side))
    graph = ok(driver.cuStreamEndCapture(side))
    (node,) = nodes_of(graph)
    assert int(ok(driver.cuGraphMemAllocNodeGetParams(node)).bytesize) == 0
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    for _ in range(2):
        run(executable, side)
        ok(driver.cuMemFreeAsync(address, side))
    ok(driver.cuStreamSynchronize(side))


def test_an_upload_takes_the_memory(graph, side):
    before = in_use()
    allocate(graph, 1024)
    executable = graph.instantiate()
    ok(driver.cuGraphUpload(executable, side))
    assert in_use() == before + 4096
    ok(driver.cuGraphExecDestroy(executable))
    assert in_use() == before


def test_memory_in_use_goes_with_its_context(side, graph, context):
    before = in_use()
    allocate(graph, 1024)
    run(graph.instantiate(), side)
    ok(driver.cuCtxDestroy(context))
    assert in_use() == before
    create_context()


# Other kinds of memory, and unknown kinds


# Type and location. The bindings of CUDA 12 have no managed pools.
KINDS = {"device": (1, 1), "host": (1, 2)}
if not IS_CUDA_12:
    KINDS |= {"managed": (2, 1), "managed anywhere": (2, 0), "managed at the host": (2, 2)}


def node_of_kind(graph, kind, size_bytes=64, number=0):
    params = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
    allocation, location = KINDS[kind]
    params.poolProps.allocType = driver.CUmemAllocationType(allocation)
    params.poolProps.location.type = driver.CUmemLocationType(location)
    params.poolProps.location.id = number
    params.bytesize = size_bytes
    return driver.cuGraphAddMemAllocNode(graph.graph, None, 0, params), params


def attribute(name, address):
    return ok(
        driver.cuPointerGetAttribute(getattr(POINTER, f"CU_POINTER_ATTRIBUTE_{name}"), address)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_allocates_memory_of_each_kind(graph, side, kind):
    added, params = node_of_kind(graph, kind)
    made, words = ok(added), Fixed(int(params.dptr), 16)
    found = ok(driver.cuGraphMemAllocNodeGetParams(made)).poolProps
    assert (int(found.allocType), int(found.location.type)) == KINDS[kind]
    graph.set(words, 5, [made])
    run(graph.instantiate(), side)
    assert bool(attribute("IS_MANAGED", words.address)) is kind.startswith("managed")
    back = np.zeros(16, np.uint32)
    ok(driver.cuMemcpy(back.ctypes.data, words.address, 64))
    assert back.tolist() == list(range(5, 21))
    if kind != "device":  # The host reaches this memory too.
        assert ctypes.c_uint32.from_address(words.address).value == 5
    ok(driver.cuMemFreeAsync(words.address, side))
    ok(driver.cuStreamSynchronize(side))
    assert code(driver.cuMemFree(words.address)) == INVALID_VALUE


@pytest.mark.parametrize("kind", sorted({"device", "managed"} & {*KINDS}))
def test_a_graph_allocates_nowhere_else(graph, kind):
    assert code(node_of_kind(graph, kind, number=99)[0]) != CODES.CUDA_SUCCESS


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_is_added_allocates_some_bytes(graph, kind):
    """cuda.core's own tests say so, and that a captured allocation may have zero bytes."""
    assert code(node_of_kind(graph, kind, size_bytes=0)[0]) == INVALID_VALUE


def test_what_is_captured_is_like_the_pool(kernels, side):
    props = driver.CUmemPoolProps()
    props.allocType = driver.CUmemAllocationType(1)
    props.location.type, props.location.id = driver.CUmemLocationType(2), 0
    pool = ok(driver.cuMemPoolCreate(props))
    ok(driver.cuStreamBeginCapture(side, GLOBAL))
    address = ok(driver.cuMemAllocFromPoolAsync(64, pool, side))
    ok(driver.cuMemFreeAsync(address, side))
    captured = ok(driver.cuStreamEndCapture(side))
    (node, _) = nodes_of(captured)
    assert int(ok(driver.cuGraphMemAllocNodeGetParams(node)).poolProps.location.type) == 2


def operation(kind, address, value):
    made = driver.CUstreamBatchMemOpParams()
    names = driver.CUstreamBatchMemOpType
    side = made.waitValue if kind == "wait" else made.writeValue
    made.operation = getattr(names, f"CU_STREAM_MEM_OP_{kind.upper()}_VALUE_32")
    side.operation = made.operation
    side.address = address
    side.value = driver.cuuint32_t(value)
    if kind == "wait":
        side.flags = 1
    return made


def test_words_are_waited_for_and_written_by_a_node(graph, side):
    x = Words(4)
    params = driver.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    params.ctx = graph.kernels.context
    params.paramArray = [
        operation("wait", x.address, 1),
        operation("write", x.address + 4, 2),
    ]
    params.count = 2
    node = ok(driver.cuGraphAddBatchMemOpNode(graph.graph, [], 0, params))
    assert ok(driver.cuGraphBatchMemOpNodeGetParams(node)).count == 2
    other = ok(driver.cuStreamCreate(1))
    ok(driver.cuGraphLaunch(graph.instantiate(), side))
    ok(driver.cuStreamWriteValue32(other, x.address, driver.cuuint32_t(1), 0))
    ok(driver.cuStreamSynchronize(side))
    assert x.read() == [1, 2, 0, 0]


def test_waits_and_writes_of_a_stream_are_captured(kernels, side):
    x = Words(4)
    ok(driver.cuStreamBeginCapture(side, GLOBAL))
    ok(driver.cuStreamWriteValue64(side, x.address, driver.cuuint64_t(3), 0))
    ok(driver.cuStreamWaitValue32(side, x.address, driver.cuuint32_t(3), 1))
    graph = ok(driver.cuStreamEndCapture(side))
    assert kinds_of(graph) == ["BATCH_MEM_OP"] * 2
    run(ok(driver.cuGraphInstantiate(graph, 0)), side)
    assert ctypes.c_uint64.from_buffer(np.array(x.read()[:2], np.uint32)).value == 3
