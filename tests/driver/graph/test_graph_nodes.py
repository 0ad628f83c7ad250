"""Graphs by hand: every kind of node, edges, changes of executables, captures."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from helpers.repository.checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.driver.graph.work import Copy, Fill, Kernel

COUNT, LENGTH = 4, 8
ROW = LENGTH * 4
# Each node: its kind, its target, its source, and a number.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["kernel", "copy", "fill", "child", "rows"]),
        st.integers(0, COUNT - 1),
        st.integers(0, COUNT - 1),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=10,
)


@pytest.fixture(scope="module")
def mix():
    return cs.Module.from_file(
        ROOT / "tests" / "helpers" / "engine_programs" / "programs.ptx"
    ).kernel("mix")


@pytest.fixture
def stream():
    return cs.Stream()


class Words:
    """Rows of integers on the device, with access to their content."""

    def __init__(self, rows=COUNT):
        self.buffer = cs.DeviceBuffer(rows * ROW)
        self.put(np.arange(rows * LENGTH, dtype=np.int32).reshape(rows, LENGTH))

    def put(self, values):
        cs.memcpy_async(self.buffer, np.ascontiguousarray(values, np.int32))
        cs.Device(0).synchronize()

    def values(self):
        found = np.empty((self.buffer.size_bytes // ROW, LENGTH), np.int32)
        cs.Device(0).synchronize()
        cs.memcpy_async(found, self.buffer)
        cs.Device(0).synchronize()
        return found

    def row(self, at, length=LENGTH):
        return self.buffer.view((length,), np.int32, offset_bytes=at * ROW)


@pytest.fixture
def words():
    return Words()


def launch_of(mix, words, target, source, factor):
    at = words.buffer.ptr
    return mix.prepare(
        grid=1, block=32, args=(at + target * ROW, at + source * ROW, factor, LENGTH, 1, 1)
    )


def add(graph, mix, words, step, after):
    kind, target, source, factor = step
    if kind == "kernel":
        return graph.add_kernel(launch_of(mix, words, target, source, factor), after)
    if kind == "copy" and target != source:
        return graph.add_copy(words.row(target), words.row(source), after)
    if kind == "rows" and target != source:
        # The first and third quarter of a row, as two rows.
        half = ROW // 4
        return graph.add_copy(
            words.row(target), words.row(source), after, size_bytes=half, rows=(2, 2 * half, half)
        )
    if kind == "child":
        child = cs.Graph()
        first = child.add_fill(words.row(target), np.int32(factor))
        child.add_kernel(launch_of(mix, words, target, source, factor), [first])
        return graph.add_child(child, after)
    return graph.add_fill(words.row(target), np.int32(factor), after)


def mixed(found, target, source, factor):
    found[target] = 31 * found[target] + factor * found[source] + np.arange(LENGTH)


def do(found, step):
    kind, target, source, factor = step
    if kind == "kernel":
        mixed(found, target, source, factor)
    elif kind == "copy" and target != source:
        found[target] = found[source]
    elif kind == "rows" and target != source:
        quarter = LENGTH // 4
        for row in range(2):
            part = found[source, row * quarter : (row + 1) * quarter]
            found[target, 2 * row * quarter : (2 * row + 1) * quarter] = part
    else:
        found[target] = factor
        if kind == "child":
            mixed(found, target, source, factor)


def is_wrong(steps, mix, added=add):
    """True if a graph of the steps, with their necessary edges, has another result than the
    steps."""
    words, graph, stream = Words(), cs.Graph(), cs.Stream()
    expected = words.values()
    writer, readers, nodes = {}, {each: [] for each in range(COUNT)}, []
    for number, step in enumerate(steps):
        _, target, source, _ = step
        after = {writer[each] for each in (target, source) if each in writer}
        after |= set(readers[target])
        nodes.append(added(graph, mix, words, step, [nodes[each] for each in sorted(after)]))
        readers[target], writer[target] = [], number
        if source != target:
            readers[source].append(number)
    with graph.instantiate() as executable:
        for _ in range(2):
            executable.launch(stream)
            for step in steps:
                do(expected, step)
        stream.synchronize()
    return not np.array_equal(words.values(), expected)


@given(STEPS)
def test_nodes_of_all_kinds_do_what_their_order_gives(mix, steps):
    assert not is_wrong(steps, mix)


def test_a_wrong_node_is_found(mix):
    """Planted: source and target pitch are exchanged."""

    def wrong(graph, mix, words, step, after):
        kind, target, source, _ = step
        if kind != "rows" or target == source:
            return add(graph, mix, words, step, after)
        half = ROW // 4
        return graph.add_copy(
            words.row(target), words.row(source), after, size_bytes=half, rows=(2, half, 2 * half)
        )

    assert is_wrong([("rows", 0, 1, 1)], mix, wrong)


def test_edges_are_told_added_and_removed(words, stream):
    graph = cs.Graph()
    first, second = (graph.add_fill(words.row(0), np.int32(each)) for each in (1, 2))
    third = graph.add_empty([second])
    graph.order(first, second)
    assert set(graph.edges) == {(first, second), (second, third)}
    assert graph.roots == [first]
    assert second.predecessors == [first]
    assert second.successors == [third]
    with pytest.raises(cs.CudaError):
        graph.order(first, second)
    graph.unorder(second, third)
    assert graph.edges == [(first, second)]
    assert third.predecessors == third.successors == []
    graph.remove(third)
    assert len(graph) == 2
    graph.instantiate().launch(stream)
    stream.synchronize()
    assert set(words.values()[0]) == {2}
    assert "->" in graph.to_dot()
    assert graph.to_dot(verbose=True).startswith("digraph")


def test_a_clone_is_changed_by_itself(words, stream):
    graph = cs.Graph()
    graph.add_fill(words.row(0), 1)
    twin = graph.clone()
    twin.add_fill(words.row(1), 1)
    graph.close()
    assert len(twin) == 2
    twin.instantiate().launch(stream)
    stream.synchronize()
    assert set(words.values()[:2].flat) == {0x01010101}


def test_host_functions_events_and_memory(words, stream):
    libc = ctypes.CDLL(None, use_errno=True)
    semaphore = ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    post = ctypes.cast(libc.sem_post, ctypes.c_void_p).value
    graph, started, event = cs.Graph(), cs.Event(), cs.Event()
    started.record(stream)
    wait = graph.add_wait(started)
    made, ptr = graph.add_allocation(ROW, [wait])
    called = graph.add_function(post, ctypes.addressof(semaphore), [made], keeps=semaphore)
    recorded = graph.add_record(event, [called])
    graph.add_free(ptr, [recorded])
    assert sorted(node.kind for node in graph.nodes) == [
        "event_record",
        "host",
        "mem_alloc",
        "mem_free",
        "wait_event",
    ]
    with graph.instantiate() as executable:
        for _ in range(3):
            executable.launch(stream)
        stream.synchronize()
        assert [libc.sem_trywait(semaphore) for _ in range(4)] == [0, 0, 0, -1]
        assert event.query()
    with pytest.raises(TypeError, match="Python must not run"):
        graph.add_function(lambda data: None)


@pytest.mark.parametrize(("value", "expected"), [(0, (0, 9)), (1, (5, 0)), (7, (5, 0))])
def test_one_of_two_bodies_runs_by_a_condition(words, stream, value, expected):
    graph = cs.Graph()
    words.put(np.zeros((COUNT, LENGTH)))
    condition = graph.condition(value)
    node, (yes, no) = graph.add_conditional("if", condition, bodies=2)
    assert node.kind == "conditional"
    yes.add_fill(words.row(0), np.int32(5))
    no.add_fill(words.row(1), np.int32(9))
    graph.instantiate().launch(stream)
    stream.synchronize()
    assert tuple(words.values()[:2, 0]) == expected
    with pytest.raises(ValueError, match="a 'while' node has 1"):
        graph.add_conditional("while", condition, bodies=2)


def test_what_was_instantiated_is_changed_node_by_node(mix, words, stream):
    graph = cs.Graph()
    kernel = graph.add_kernel(launch_of(mix, words, 0, 1, 2))
    copied = graph.add_copy(words.row(2), words.row(0), [kernel])
    filled = graph.add_fill(words.row(3), np.int32(4), [copied])
    executable = graph.instantiate()
    expected = words.values()
    executable.change(kernel, Kernel(launch_of(mix, words, 0, 1, 5)))
    executable.change(copied, Copy(words.row(2), words.row(1)))
    executable.change(filled, Fill(words.row(3), np.int32(6)))
    executable.launch(stream)
    mixed(expected, 0, 1, 5)
    expected[2], expected[3] = expected[1], 6
    assert np.array_equal(words.values(), expected)
    executable.disable(kernel)
    assert not executable.is_enabled(kernel)
    executable.launch(stream)
    assert np.array_equal(words.values(), expected)
    executable.enable(kernel)
    executable.launch(stream)
    mixed(expected, 0, 1, 5)
    assert np.array_equal(words.values(), expected)
    with pytest.raises(TypeError, match="a kernel node cannot do the work of a memset node"):
        executable.change(kernel, Fill(words.row(3), 1))


def test_what_was_instantiated_is_updated_as_a_whole(words, stream):
    def graph_of(value, *more):
        graph = cs.Graph()
        first = graph.add_fill(words.row(0), np.int32(value))
        for each in more:
            graph.add_fill(words.row(1), np.int32(each), [first])
        return graph

    executable = graph_of(1).instantiate()
    executable.update(graph_of(2))
    executable.launch(stream)
    assert set(words.values()[0]) == {2}
    with pytest.raises(cs.CudaError) as error:
        executable.update(graph_of(3, 4))
    assert "instantiate the new graph" in str(error.value)
    assert "topology changed" in "".join(error.value.__notes__)
    executable.launch(stream)
    assert set(words.values()[0]) == {2}


def test_a_stream_is_captured(words, stream):
    side = cs.Stream()
    with stream.capture() as graph:
        cs.memset_async(words.row(0), np.int32(1), stream=stream)
        side.wait(stream)
        cs.memset_async(words.row(1), np.int32(2), stream=side)
        stream.wait(side)
        cs.memcpy_async(words.row(2), words.row(1), stream=stream)
        with pytest.raises(ValueError, match="under way"):
            graph.instantiate()
    before = words.values()
    executable = graph.instantiate()
    assert np.array_equal(words.values(), before)
    executable.launch(stream)
    assert words.values()[:3, 0].tolist() == [1, 2, 2]


def test_misuse_of_a_capture_is_said_and_ends_it(words, stream):
    with pytest.raises(ValueError, match="relaxed"):
        stream.capture("none")
    with pytest.raises(ValueError, match="legacy default stream"), cs.LEGACY_STREAM.capture():
        pass
    with pytest.raises(RuntimeError, match="no"), stream.capture() as graph:
        raise RuntimeError("no")
    with pytest.raises(ValueError, match="has failed"):
        graph.instantiate()
    side = cs.Stream()

    def leaves_a_stream():
        with stream.capture():
            side.wait(stream)
            cs.memset_async(words.row(0), 1, stream=side)

    with pytest.raises(cs.CudaError, match="let the first stream wait"):
        leaves_a_stream()
    with pytest.raises(cs.CudaError, match="does not run"), stream.capture():
        stream.synchronize()
    with stream.capture(), pytest.raises(cs.CudaError, match="end that first"), stream.capture():
        pass
    # Each capture has ended, so the stream works as before.
    cs.memset_async(words.row(0), np.int32(3), stream=stream)
    stream.synchronize()
    assert set(words.values()[0]) == {3}


def test_graphs_go_in_and_out_by_their_handles(words, stream):
    graph = cs.Graph()
    graph.add_fill(words.row(0), np.int32(8))
    theirs = cs.Graph.from_handle(graph.handle)
    theirs.add_fill(words.row(1), np.int32(9))
    assert len(graph) == 2
    executable = theirs.instantiate()
    cs.GraphExec.from_handle(executable.handle).launch(stream)
    theirs.close()
    assert len(graph) == 2
    assert words.values()[:2, 0].tolist() == [8, 9]


def test_operands_that_do_not_fit_are_refused(words):
    graph, other = cs.Graph(), cs.Graph()
    row = words.row(0)
    for wrong in (
        lambda: graph.add_copy(row, words.row(1, 4)),
        lambda: graph.add_copy(row, words.row(1), size_bytes=16, rows=(3, 16, 16)),
        lambda: graph.add_copy(row, words.row(1), size_bytes=16, rows=(2, 8, 16)),
        lambda: graph.add_copy(row, words.row(1), size_bytes=0),
        lambda: graph.add_fill(row, 300),
        lambda: graph.add_fill(row, 1, size_bytes=0),
        lambda: graph.add_fill(row, 1, [other.add_empty()]),
        lambda: graph.add_allocation(0),
        lambda: graph.add_function(0),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 (each has words of its own)
            wrong()
    with pytest.raises(TypeError, match="fill takes device memory"):
        graph.add_fill(np.zeros(4), 1)
    assert len(graph) == 0
    graph.close()
    with pytest.raises(cs.ClosedError):
        graph.add_empty()
