"""Graphs by hand: nodes and their order, captures, launches, and misuse."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from helpers.repository.checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs

COUNT, LENGTH = 4, 8
# Each node computes target = 31 * target + factor * source + position on two of four arrays.
DAGS = st.lists(
    st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1), st.integers(1, 9)),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def mix():
    return cs.Module.from_file(
        ROOT / "tests" / "helpers" / "engine_programs" / "programs.ptx"
    ).kernel("mix")


@pytest.fixture(scope="module")
def words():
    """One buffer for all arrays."""
    return cs.DeviceBuffer(COUNT * LENGTH * 4)


def first_values():
    return np.arange(COUNT * LENGTH, dtype=np.int32).reshape(COUNT, LENGTH)


def expected(dag, times):
    found = first_values()
    for _ in range(times):
        for target, source, factor in dag:
            found[target] = 31 * found[target] + factor * found[source] + np.arange(LENGTH)
    return found


def launch_of(mix, words, target, source, factor):
    at, row = words.ptr, LENGTH * 4
    args = (at + target * row, at + source * row, factor, LENGTH, 1, 1)
    return mix.prepare(grid=1, block=32, args=args)


def is_wrong(dag, mix, words, times=2):
    """True if a graph of the nodes, with their necessary edges, has another result than the nodes
    in sequence."""
    graph, stream = cs.Graph(), cs.Stream()
    writer, readers = {}, {each: [] for each in range(COUNT)}
    nodes = []
    for number, (target, source, factor) in enumerate(dag):
        after = {writer[each] for each in (target, source) if each in writer}
        after |= set(readers[target])
        launch = launch_of(mix, words, target, source, factor)
        node = graph.add_kernel(launch, [nodes[each] for each in sorted(after)])
        nodes.append(node)
        readers[target] = []
        writer[target] = number
        if source != target:
            readers[source].append(number)
    host = cs.pinned_empty((COUNT, LENGTH), np.int32)
    host[:] = first_values()
    cs.memcpy_async(words, host, stream=stream)
    executable = graph.instantiate()
    assert len(graph) == len(dag)
    graph.close()
    for _ in range(times):
        executable.launch(stream)
    cs.memcpy_async(host, words, stream=stream)
    stream.synchronize()
    executable.close()
    return not np.array_equal(host, expected(dag, times))


@given(DAGS)
def test_any_graph_gives_what_its_nodes_give_in_their_order(mix, words, dag):
    assert not is_wrong(dag, mix, words)


def test_an_edge_that_is_missing_is_found(mix, words):
    """The driver may take nodes in any order that the edges permit, so the nodes are added
    backwards."""

    def backwards(dag):
        graph, stream = cs.Graph(), cs.Stream()
        for step in reversed(dag):
            graph.add_kernel(launch_of(mix, words, *step))
        host = cs.pinned_empty((COUNT, LENGTH), np.int32)
        host[:] = first_values()
        cs.memcpy_async(words, host, stream=stream)
        graph.instantiate().launch(stream)
        cs.memcpy_async(host, words, stream=stream)
        stream.synchronize()
        return not np.array_equal(host, expected(dag, 1))

    assert backwards([(0, 1, 2), (1, 0, 3)])


def test_what_is_captured_is_a_part_with_its_edges(words):
    graph, stream = cs.Graph(), cs.Stream()
    pinned = cs.pinned_empty((LENGTH,), np.int32)
    back = cs.pinned_empty((LENGTH,), np.int32)
    pinned[:] = 7
    part = words.view((LENGTH,), np.int32)

    def copies(on):
        cs.memcpy_async(part, pinned, stream=on)

    ends = graph.add_captured(copies, stream)
    (last,) = graph.add_captured(lambda on: cs.memcpy_async(back, part, stream=on), stream, ends)
    assert last.kind == "memcpy"
    assert {each.kind for each in graph.nodes} == {"memcpy"}
    assert last in graph.nodes
    # A capture of no work returns the nodes that it comes after.
    assert graph.add_captured(lambda on: None, stream, [last]) == [last]
    executable = graph.instantiate()
    executable.upload(stream)
    back[:] = 0
    executable.launch(stream)
    stream.synchronize()
    assert back.tolist() == [7] * LENGTH
    pinned[:] = 8
    event = cs.Event()
    executable.launch(stream, event)
    event.synchronize()
    assert back.tolist() == [8] * LENGTH


def test_a_capture_that_fails_leaves_the_stream_as_it_was_and_the_graph_of_no_use():
    graph, stream = cs.Graph(), cs.Stream()

    def fails(on):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        graph.add_captured(fails, stream)
    assert stream.query()
    with pytest.raises(ValueError, match="build a new graph"):
        graph.instantiate()


def _waits(executable, on):
    on.synchronize()


def _launches(executable, on):
    executable.launch(on)


@pytest.mark.parametrize("breaks", [_waits, _launches])
def test_a_call_that_breaks_a_capture_takes_the_graph_along(breaks):
    graph, stream = cs.Graph(), cs.Stream()
    executable = cs.Graph().instantiate()
    with pytest.raises(cs.CudaError, match="CAPTURE_UNSUPPORTED") as error:
        graph.add_captured(lambda on: breaks(executable, on), stream)
    assert "has destroyed the graph" in "".join(error.value.__notes__)
    assert graph.was_broken
    assert graph.is_closed
    # Closing destroys nothing twice, and the stream works as before.
    graph.close()
    with pytest.raises(ValueError, match="build a new graph"):
        graph.instantiate()
    other = cs.Graph()
    assert other.add_captured(lambda on: None, stream) == []
    executable.launch(stream)
    stream.synchronize()


def test_a_function_that_hides_a_broken_capture_is_found_at_its_end():
    graph, stream = cs.Graph(), cs.Stream()

    def hides(on):
        with suppress(cs.CudaError):
            on.synchronize()

    with pytest.raises(cs.CudaError, match="CAPTURE_INVALIDATED"):
        graph.add_captured(hides, stream)
    assert graph.was_broken


def test_misuse_is_said(mix, words):
    one, other = cs.Graph(), cs.Graph()
    node = one.add_empty()
    assert node.kind == "empty"
    with pytest.raises(ValueError, match="own graph"):
        other.add_empty([node])
    executable = one.instantiate()
    if cs.device_count() > 1:
        with pytest.raises(ValueError, match="loaded on"):
            cs.Graph(1).add_kernel(launch_of(mix, words, 0, 0, 1))
        with pytest.raises(ValueError, match="the stream to"):
            executable.launch(cs.Stream(1))
    one.close()
    one.close()
    assert one.is_closed
    assert "closed" in repr(node)
    for ask in (lambda: one.handle, lambda: node.kind, one.instantiate, lambda: len(one)):
        with pytest.raises(cs.ClosedError, match="graph is closed"):
            ask()
    # The executable stays valid.
    executable.launch(cs.Stream())
    executable.close()
    executable.close()
    with pytest.raises(cs.ClosedError, match="executable graph is closed"):
        executable.launch()


def test_a_reset_ends_graphs_with_its_device():
    graph = cs.Graph()
    executable = graph.instantiate()
    cs.Device(0).reset()
    for ask in (lambda: graph.handle, executable.launch):
        with pytest.raises(cs.ClosedError, match="reset"):
            ask()
