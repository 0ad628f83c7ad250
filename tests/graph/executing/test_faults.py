"""A device fault in a graph names its possible nodes, and where they were recorded."""

from __future__ import annotations

import re
import sys
import threading

import numpy as np
import pytest

import cudasync as cs
from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.graph.fault_candidates import Candidates

pytestmark = pytest.mark.loses_device

# The offset in pages, far from any memory.
FAR, NEAR = np.uint32(1 << 28), np.uint32(0)
STORE = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry KERNEL(.param .u64 target, .param .u32 pages)
{
    .reg .b64 %rd_target, %rd_beyond;
    .reg .b32 %r_pages;
    ld.param.u64 %rd_target, [target];
    ld.param.u32 %r_pages, [pages];
    mul.wide.u32 %rd_beyond, %r_pages, 4096;
    add.s64 %rd_target, %rd_target, %rd_beyond;
    st.global.u32 [%rd_target], 1;
    ret;
}
"""
NO_REPORT = cs.CudaError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", call="cuEventSynchronize")


@pytest.fixture(autouse=True, params=["async", "serial"])
def engine(request):
    with cs.Engine(request.param) as engine, cs.use(engine):
        yield engine
        engine.clear_errors()
        cs.Device(0).reset()


@pytest.fixture
def store():
    return cs.Module.from_ptx(STORE.replace("KERNEL", "store")).kernel("store")


def here(lines=0):
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno + lines}"


def failed(executable, op):
    with pytest.raises(cs.OpError) as caught:
        op.wait()
    assert isinstance(caught.value.cause, cs.CudaError)
    assert caught.value.cause.sticky
    executable.close()
    return caught.value


def knows_nodes(error):
    """True if the driver's report has the node's number. A real driver's report does not."""
    return "of its graph" in error.cause.hint


def test_it_is_one_node_where_the_driver_says_which(store):
    x, y = cs.zeros(4, np.int32), cs.zeros(4, np.int32)
    with cs.graph() as g:
        store[1, 1](x, NEAR)
        (store[1, 1](y, FAR), site := here())
        store[1, 1](x, NEAR)
    executable = g.instantiate()
    error = failed(executable, executable.launch())
    assert f"node 1 (store), recorded at {site}" in error.op
    assert ("one of" in error.op) is not knows_nodes(error)
    # A reader of the node's output gets the same error.
    with pytest.raises(cs.OpError, match=re.escape(site)):
        y.numpy()


def test_the_numbers_are_right_behind_functions_that_enqueue_more_or_less_than_one(store):
    x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)

    def two(stream):
        cs.memset_async(x, 1, stream=stream)
        cs.memset_async(x, 2, stream=stream)

    with cs.graph() as g:
        cs.engine().push(two, writes=x, device=0)
        cs.engine().push(lambda stream: None, reads=x, device=0)
        store[1, 1](x, NEAR)
        (store[1, 1](y, FAR), site := here())
        store[1, 1](x, NEAR)
    executable = g.instantiate(without=("copies", "dead"))
    assert len(executable.parts) == 1
    error = failed(executable, executable.launch())
    assert f"(store), recorded at {site}" in error.op
    assert ("one of" in error.op) is not knows_nodes(error)


def test_so_they_are_where_two_graphs_share_one_of_the_driver(store):
    x = cs.zeros(4, np.int32)
    sites = []
    graphs = []
    for _ in range(2):
        with cs.graph() as g:
            store[1, 1](x, NEAR)
            if graphs:
                (store[1, 1](x, FAR), sites.append(here()))
            else:
                (store[1, 1](x, FAR), sites.append(here()))
        graphs.append(g.instantiate())
    assert graphs[1].parts[0].origin == "shared"
    error = failed(graphs[1], graphs[1].launch())
    assert sites[1] in error.op
    assert sites[0] not in error.op


def test_without_a_report_all_nodes_are_candidates_and_a_few_are_named(store):
    x = cs.zeros(64, np.int32)
    with cs.graph() as g:
        for _ in range(10):
            (store[1, 1](x, NEAR), site := here())
    with g.instantiate() as executable:
        candidates = Candidates.of(executable.nodes, range(1, 11))
    said = candidates.said_of(NO_REPORT)
    assert said.startswith(f"one of: node 0 (store), recorded at {site}; node 1 ")
    assert said.count("; ") == 8
    assert said.endswith("; 2 more")
    assert candidates[0] == "store"


def test_a_report_that_names_a_kernel_leaves_out_the_others(store):
    x = cs.zeros(64, np.int32)
    with cs.graph() as g:
        store[1, 1](x, NEAR)
        x += 1
    with g.instantiate() as executable:
        candidates = Candidates.of(executable.nodes, range(1, 3))
    hint = "kernel store, PTX line 3, node {} of its graph, block (0, 0, 0)"
    for number in (0, 1, 7):
        # A number from another graph's report is not used.
        error = cs.CudaError(700, "ILLEGAL", call="cuGraphLaunch", hint=hint.format(number))
        assert candidates.said_of(error).startswith("node 0 (store)")


def test_a_node_that_is_an_op_of_its_own_is_named_too():
    # The integer may be a pointer to any memory.
    reach = cs.Module.from_ptx(STORE.replace("KERNEL", "reach")).kernel("reach")
    with cs.graph() as g:
        cs.zeros(4, np.int32)
        (reach[1, 1](np.uint64(1 << 40), NEAR), site := here())
    executable = g.instantiate()
    assert any(len(part.nodes) == 1 and part.nodes[0].is_alone for part in executable.parts)
    error = failed(executable, executable.launch())
    assert f"(reach), recorded at {site}" in error.op


def test_a_graph_that_may_reach_all_memory_names_none_that_is_nobodys():
    test_a_node_that_is_an_op_of_its_own_is_named_too()
    with cs.Engine() as engine:
        gate = threading.Event()
        held = np.zeros(4)
        engine.push(lambda: gate.wait(20), reads=[held])
        everywhere = Everywhere(0, 1 << 64)
        broken = engine.push(lambda: 1 // 0, reads=[everywhere], writes=[everywhere])
        late = engine.push(lambda: None, reads=[np.ones(64)])
        gate.set()
        assert broken.exception() is not None
        late.wait(20)
        engine.clear_errors()


def test_nor_does_its_launch_tell_of_what_failed_in_memory_that_is_not_ours():
    theirs = np.zeros(4)
    assert cs.engine().push(lambda: 1 // 0, writes=[theirs]).exception() is not None
    test_a_node_that_is_an_op_of_its_own_is_named_too()


@pytest.mark.usefixtures("rounds_stay")
@pytest.mark.parametrize("without", [(), ("conditionals",)], ids=["the driver's", "the engine's"])
def test_a_fault_in_a_block_names_the_node_inside(store, without):
    x = cs.zeros(4, np.int32)
    with cs.graph() as g, g.repeat(2):
        x += 1
        (store[1, 1](x, FAR), site := here())
        store[1, 1](x, NEAR)
    executable = g.instantiate(without=without)
    assert site in str(failed(executable, executable.launch()))


def test_numbers_that_are_off_by_one_are_found(store, monkeypatch):
    right = Candidates._at
    monkeypatch.setattr(Candidates, "_at", lambda self, number: right(self, number + 1))
    with pytest.raises(AssertionError):
        test_it_is_one_node_where_the_driver_says_which(store)
