"""Conditional nodes, through the real cuda.bindings."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import cuda13, message, ok
from helpers.driver.graph_builder import (
    CODES,
    HOST_FUNCTION,
    GraphText,
    Words,
    code,
    kinds_of,
    nodes_of,
    run,
)
from helpers.driver.graph_programs import scheduler

INVALID_VALUE = CODES.CUDA_ERROR_INVALID_VALUE
TYPES = driver.CUgraphConditionalNodeType
IF, WHILE = TYPES.CU_GRAPH_COND_TYPE_IF, TYPES.CU_GRAPH_COND_TYPE_WHILE
ASSIGN = 1

# NVRTC's output for such a kernel: the function is declared and never defined.
PTX = b"""
.version 8.3
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);

// The word at `counter` goes one down; the condition is whether anything is left.
.visible .entry count_down(.param .u64 condition, .param .u64 counter)
{
    .reg .pred %p_left;
    .reg .b32 %r_count, %r_left;
    .reg .b64 %rd_condition, %rd_counter;
    ld.param.u64 %rd_condition, [condition];
    ld.param.u64 %rd_counter, [counter];
    cvta.to.global.u64 %rd_counter, %rd_counter;
    ld.global.u32 %r_count, [%rd_counter];
    sub.u32 %r_count, %r_count, 1;
    st.global.u32 [%rd_counter], %r_count;
    setp.ne.u32 %p_left, %r_count, 0;
    selp.u32 %r_left, 1, 0, %p_left;
    {
    .param .b64 first;
    st.param.b64 [first], %rd_condition;
    .param .b32 second;
    st.param.b32 [second], %r_left;
    call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}

.visible .entry choose(.param .u64 condition, .param .u32 value)
{
    .reg .b32 %r_value;
    .reg .b64 %rd_condition;
    ld.param.u64 %rd_condition, [condition];
    ld.param.u32 %r_value, [value];
    {
    .param .b64 first;
    st.param.b64 [first], %rd_condition;
    .param .b32 second;
    st.param.b32 [second], %r_value;
    call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}
"""


class Conditions:
    """The kernels above, and nodes that read the conditions that the kernels set."""

    def __init__(self, graph):
        self.graph = graph
        self.module = ok(driver.cuModuleLoadData(PTX))

    def handle(self, initial=0, flags=ASSIGN):
        context = self.graph.kernels.context
        made = driver.cuGraphConditionalHandleCreate(self.graph.graph, context, initial, flags)
        return ok(made)

    def node(self, handle, kind, size=1, after=()):
        """Add a conditional node; return the result and the graphs of its bodies."""
        params = driver.CUgraphNodeParams()
        params.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle = handle
        params.conditional.type = kind
        params.conditional.size = size
        params.conditional.ctx = self.graph.kernels.context
        edges = [driver.CUgraphEdgeData() for _ in after]
        added = cuda13.cuGraphAddNode(self.graph.graph, list(after), edges, len(after), params)
        bodies = params.conditional.phGraph_out[:size] if code(added) == 0 else []
        return added, [GraphText(self.graph.kernels, body) for body in bodies]

    def params(self, name, arguments):
        function = ok(driver.cuModuleGetFunction(self.module, name))
        return self.graph.kernels.params(function, arguments, 1)

    def count_down(self, handle, counter):
        arguments = (int(handle), counter.address), (ctypes.c_uint64, ctypes.c_void_p)
        made = self.params(b"count_down", arguments)
        made.blockDimX = 1
        return made

    def choose(self, handle, value):
        arguments = (int(handle), value), (ctypes.c_uint64, ctypes.c_uint32)
        return self.params(b"choose", arguments)


@pytest.fixture
def conditions(graph):
    return Conditions(graph)


@pytest.mark.parametrize(("value", "expected"), [(1, [5, 6]), (0, [0, 0])])
def test_a_body_runs_if_the_condition_holds(graph, conditions, side, value, expected):
    x = Words(2)
    handle = conditions.handle()
    chosen = graph.kernel(conditions.choose(handle, value))
    added, (body,) = conditions.node(handle, IF, after=[chosen])
    body.set(x, 5)
    graph.mix(x, x, 1, [ok(added)])
    executable = graph.instantiate()
    run(executable, side)
    assert x.read() == [32 * v + i for i, v in enumerate(expected)]


@pytest.mark.parametrize("value", [0, 1])
def test_another_body_runs_if_it_does_not(graph, conditions, side, value):
    x = Words(2)
    handle = conditions.handle(initial=value)
    _, (body, otherwise) = conditions.node(handle, IF, size=2)
    body.fill(x, 5)
    otherwise.fill(x, 6)
    run(graph.instantiate(), side)
    assert x.read() == [6 - value] * 2


@pytest.mark.parametrize("schedule", ["fifo", "seed=1", "seed=2"])
def test_a_body_runs_while_the_condition_holds(graph, conditions, side, schedule):
    x, counter = Words(2, 1), Words(1, 3)
    handle = conditions.handle(initial=1)
    added, (body,) = conditions.node(handle, WHILE)
    body.kernel(conditions.count_down(handle, counter), [body.mix(x, x, 0)])
    graph.set(counter, 2, [ok(added)])
    executable = graph.instantiate()
    expected = [1, 1]
    with scheduler(schedule):
        for rounds in (3, 2):
            run(executable, side)
            for _ in range(rounds):
                expected = [31 * v + i for i, v in enumerate(expected)]
            assert x.read() == expected
    assert counter.read() == [2]


@pytest.mark.parametrize("value", [0, 2, 7])
def test_one_of_many_bodies_is_chosen(graph, conditions, side, value):
    x = Words(2)
    handle = conditions.handle(initial=value)
    _, bodies = conditions.node(handle, TYPES.CU_GRAPH_COND_TYPE_SWITCH, size=3)
    for number, body in enumerate(bodies):
        body.fill(x, 10 + number)
    run(graph.instantiate(), side)
    assert x.read() == [0 if value == 7 else 10 + value] * 2


def test_bodies_have_conditional_nodes_of_their_own(graph, conditions, side):
    x, counter = Words(2, 1), Words(1, 4)
    outer = conditions.handle(initial=1)
    _, (body,) = conditions.node(outer, WHILE)
    inside = Conditions(body)
    inner = inside.handle()
    counted = body.kernel(inside.count_down(outer, counter))
    chosen = body.kernel(inside.choose(inner, 1), [counted])
    _, (deepest,) = inside.node(inner, IF, after=[chosen])
    deepest.mix(x, x, 0)
    run(graph.instantiate(), side)
    expected = [1, 1]
    for _ in range(4):
        expected = [31 * v + i for i, v in enumerate(expected)]
    assert x.read() == expected
    assert kinds_of(body.graph) == ["KERNEL", "KERNEL", "CONDITIONAL"]


def test_without_a_default_a_condition_keeps_what_it_was(graph, conditions, side):
    x = Words(2, 1)
    handle = conditions.handle(initial=1, flags=0)
    added, (body,) = conditions.node(handle, IF)
    body.mix(x, x, 0)
    graph.kernel(conditions.choose(handle, 0), [ok(added)])
    run(graph.instantiate(), side, times=3)
    assert x.read() == [31, 32]


def test_a_body_can_be_captured(graph, conditions, side):
    x = Words(2)
    _, (body,) = conditions.node(conditions.handle(initial=1), IF)
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ok(driver.cuStreamBeginCaptureToGraph(side, body.graph, [], [], 0, mode))
    graph.kernels.launch_set(side, x, 5)
    assert int(ok(driver.cuStreamEndCapture(side))) == int(body.graph)
    run(graph.instantiate(), side)
    assert x.read() == [5, 6]


def test_an_update_brings_its_own_condition(graph, conditions, side):
    x = Words(2)
    _, (body,) = conditions.node(conditions.handle(initial=0), IF)
    body.fill(x, 1)
    executable = graph.instantiate()
    other = Conditions(GraphText(graph.kernels))
    _, (body,) = other.node(other.handle(initial=1), IF)
    body.fill(x, 2)
    assert code(driver.cuGraphExecUpdate(executable, other.graph.graph)) == 0
    run(executable, side)
    assert x.read() == [2, 2]


def test_an_endless_loop_ends_with_a_fault(graph, conditions, side, monkeypatch):
    monkeypatch.setattr("cudasync.softgpu.core.graphs.conditional_nodes._MOST_ROUNDS", 50)
    _, (body,) = conditions.node(conditions.handle(initial=1), WHILE)
    body.empty()
    ok(driver.cuGraphLaunch(graph.instantiate(), side))
    assert code(driver.cuStreamSynchronize(side)) == CODES.CUDA_ERROR_LAUNCH_TIMEOUT


def test_mistakes_with_conditions_have_their_codes(graph, conditions, side):
    handle = conditions.handle()
    assert code(driver.cuGraphInstantiate(graph.graph, 0)) == INVALID_VALUE
    assert "handle" in message(INVALID_VALUE)
    assert code(conditions.node(handle, WHILE, size=2)[0]) == INVALID_VALUE
    assert code(conditions.node(handle, IF, size=3)[0]) == INVALID_VALUE
    added, (body,) = conditions.node(handle, IF)
    assert code(conditions.node(handle, IF)[0]) == INVALID_VALUE
    foreign = Conditions(GraphText(graph.kernels)).handle()
    assert code(conditions.node(foreign, IF)[0]) == INVALID_VALUE
    assert code(driver.cuGraphDestroy(body.graph)) == INVALID_VALUE
    outer = GraphText(graph.kernels)
    child = driver.cuGraphAddChildGraphNode(outer.graph, [], 0, graph.graph)
    assert code(child) == INVALID_VALUE
    executable = graph.instantiate()
    assert code(driver.cuGraphNodeGetEnabled(executable, ok(added))) == INVALID_VALUE
    body.host(HOST_FUNCTION(print))
    refused = driver.cuGraphInstantiate(graph.graph, 0)
    assert code(refused) == CODES.CUDA_ERROR_NOT_SUPPORTED
    ok(driver.cuGraphDestroyNode(ok(added)))
    assert nodes_of(graph.graph) == []
    assert code(driver.cuGraphGetNodes(body.graph, 1)) == INVALID_VALUE


def test_a_destroyed_node_takes_its_condition_along_and_those_of_its_bodies(
    graph, conditions, side
):
    x = Words(2)
    free_before = ok(driver.cuMemGetInfo())[0]
    outer, (body,) = conditions.node(conditions.handle(initial=1), IF)
    inside = Conditions(body)
    _, (inner,) = inside.node(inside.handle(initial=1), IF)
    inner.fill(x, 5)
    executable = graph.instantiate()
    ok(driver.cuGraphDestroyNode(ok(outer)))
    assert ok(driver.cuMemGetInfo())[0] < free_before
    run(executable, side)
    assert x.read() == [5, 5]
    ok(driver.cuGraphExecDestroy(executable))
    assert ok(driver.cuMemGetInfo())[0] == free_before
    # The remaining graph is like any other.
    graph.fill(x, 6)
    run(graph.instantiate(), side)
    assert x.read() == [6, 6]


def test_a_condition_goes_with_the_last_that_has_it(graph, conditions, side):
    x = Words(2)
    free_before = ok(driver.cuMemGetInfo())[0]
    _, (body,) = conditions.node(conditions.handle(initial=1), IF)
    body.fill(x, 5)
    clone = ok(driver.cuGraphClone(graph.graph))
    executable = ok(driver.cuGraphInstantiate(clone, 0))
    ok(driver.cuGraphDestroy(graph.graph))
    ok(driver.cuGraphDestroy(clone))
    assert ok(driver.cuMemGetInfo())[0] < free_before
    ok(driver.cuGraphLaunch(executable, side))
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuStreamSynchronize(side))
    assert x.read() == [5, 5]
    assert ok(driver.cuMemGetInfo())[0] == free_before
