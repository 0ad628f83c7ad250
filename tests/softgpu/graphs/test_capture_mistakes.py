"""Calls that are forbidden while streams are captured, and their result codes."""

from __future__ import annotations

import threading

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import cuda13, message, ok
from helpers.driver.graph_builder import CODES, Words, code, nodes_of, run
from helpers.driver.stream_capture import (
    ACTIVE,
    GLOBAL,
    NONE,
    RELAXED,
    THREAD_LOCAL,
    UNSUPPORTED,
    begin,
    end,
    is_invalid_until_its_end,
    status,
)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: driver.cuStreamSynchronize(s),
        lambda s: driver.cuStreamQuery(s),
        lambda s: driver.cuCtxSynchronize(),
        lambda s: driver.cuMemAlloc(64),
        lambda s: driver.cuMemAllocHost(64),
        lambda s: driver.cuMemFree(1 << 40),
        lambda s: driver.cuEventQuery(ok(driver.cuEventCreate(0))),
    ],
)
def test_waiting_and_allocating_invalidate_a_capture(kernels, side, call):
    begin(side)
    assert code(call(side)) == UNSUPPORTED
    refused = driver.cuMemsetD32Async(0, 0, 0, side)
    assert code(refused) == CODES.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    assert "invalid" in message(code(refused))
    assert is_invalid_until_its_end(side)


def test_modes_say_who_may_allocate_meanwhile(kernels, side):
    def allocate():
        codes.append(code(driver.cuCtxSetCurrent(kernels.context)))
        codes.append(code(driver.cuMemAlloc(64)))

    for mode, expected in ((GLOBAL, UNSUPPORTED), (THREAD_LOCAL, 0), (RELAXED, 0)):
        codes = []
        begin(side, mode)
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
        assert codes == [0, expected]
        driver.cuStreamEndCapture(side)
    begin(side, RELAXED)
    ok(driver.cuMemAlloc(64))
    end(side)


def test_a_thread_may_relax_its_own_mode(kernels, side):
    begin(side)
    before = ok(driver.cuThreadExchangeStreamCaptureMode(RELAXED))
    assert before == GLOBAL
    ok(driver.cuMemAlloc(64))
    assert ok(driver.cuThreadExchangeStreamCaptureMode(before)) == RELAXED
    end(side)


def test_the_legacy_stream_may_not_be_used_while_a_blocking_stream_is_captured(kernels, context):
    x = Words(4)
    blocking = ok(driver.cuStreamCreate(0))
    begin(blocking)
    implicit = CODES.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
    assert code(driver.cuStreamIsCapturing(0)) == implicit
    assert status(blocking) == ACTIVE
    assert code(driver.cuMemsetD32(x.address, 1, 4)) == implicit
    assert is_invalid_until_its_end(blocking)
    ok(driver.cuMemsetD32(x.address, 1, 4))
    assert status(0) == NONE


def test_work_outside_may_not_be_waited_for(kernels, side, other, events):
    begin(side)
    ok(driver.cuEventRecord(events[0], other))
    isolation = CODES.CUDA_ERROR_STREAM_CAPTURE_ISOLATION
    assert code(driver.cuStreamWaitEvent(side, events[0], 0)) == isolation
    assert is_invalid_until_its_end(side)


def test_two_captures_may_not_become_one(kernels, side, other, events):
    begin(side)
    begin(other)
    ok(driver.cuEventRecord(events[0], other))
    merge = CODES.CUDA_ERROR_STREAM_CAPTURE_MERGE
    assert code(driver.cuStreamWaitEvent(side, events[0], 0)) == merge
    assert is_invalid_until_its_end(side)
    assert is_invalid_until_its_end(other)


def test_a_fork_has_to_be_joined(kernels, side, other, events):
    x = Words(4)
    begin(side)
    ok(driver.cuEventRecord(events[0], side))
    ok(driver.cuStreamWaitEvent(other, events[0], 0))
    kernels.launch_set(other, x, 1)
    unmatched = CODES.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    assert code(driver.cuStreamEndCapture(side)) == unmatched
    assert (status(side), status(other)) == (NONE, NONE)


def test_a_capture_ends_where_it_began(kernels, side, other, events):
    begin(side)
    ok(driver.cuEventRecord(events[0], side))
    ok(driver.cuStreamWaitEvent(other, events[0], 0))
    unmatched = CODES.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
    assert code(driver.cuStreamEndCapture(other)) == unmatched
    assert is_invalid_until_its_end(side)
    assert status(other) == NONE


def test_another_thread_may_end_only_a_relaxed_capture(kernels, side):
    codes = []

    def finish():
        ok(driver.cuCtxSetCurrent(kernels.context))
        codes.append(code(driver.cuStreamEndCapture(side)))

    for mode in (GLOBAL, RELAXED):
        begin(side, mode)
        thread = threading.Thread(target=finish)
        thread.start()
        thread.join()
        if mode is GLOBAL:
            end(side)
    assert codes == [CODES.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 0]


def test_a_captured_event_is_no_event_to_wait_for(kernels, side, other, events):
    begin(side)
    ok(driver.cuEventRecord(events[0], side))
    captured = CODES.CUDA_ERROR_CAPTURED_EVENT
    assert code(driver.cuEventSynchronize(events[0])) == captured
    assert is_invalid_until_its_end(side)
    assert code(driver.cuEventQuery(events[0])) == captured
    assert code(driver.cuStreamWaitEvent(other, events[0], 0)) == captured
    ok(driver.cuEventRecord(events[0], other))
    ok(driver.cuEventSynchronize(events[0]))


@pytest.mark.parametrize("is_over", [False, True])
def test_a_context_may_not_wait_for_a_captured_event(kernels, side, events, is_over):
    begin(side)
    ok(driver.cuEventRecord(events[0], side))
    if is_over:
        end(side)
    expected = CODES.CUDA_ERROR_CAPTURED_EVENT if is_over else UNSUPPORTED
    assert code(driver.cuCtxWaitEvent(kernels.context, events[0])) == expected
    assert is_over or is_invalid_until_its_end(side)


@pytest.mark.parametrize("call", ["cuCtxWaitEvent", "cuCtxRecordEvent"])
def test_a_context_with_a_captured_stream_takes_no_part_in_events(kernels, side, events, call):
    ok(getattr(driver, call)(kernels.context, events[0]))
    begin(side)
    assert code(getattr(driver, call)(kernels.context, events[0])) == UNSUPPORTED
    assert is_invalid_until_its_end(side)


def test_a_graph_that_is_captured_into_is_not_destroyed_cut_or_instantiated(kernels, side):
    x = Words(4)
    # In other modes, an instantiation of any graph would end the capture.
    begin(side, RELAXED)
    kernels.launch_set(side, x, 1)
    graph = ok(cuda13.cuStreamGetCaptureInfo(side))[2]
    (node,) = nodes_of(graph)
    for refused in (
        driver.cuGraphDestroy(graph),
        driver.cuGraphDestroyNode(node),
        driver.cuGraphInstantiate(graph, 0),
    ):
        assert code(refused) == CODES.CUDA_ERROR_INVALID_VALUE
    clone = ok(driver.cuGraphClone(graph))
    ok(driver.cuGraphDestroy(clone))
    assert int(end(side)) == int(graph)
    run(ok(driver.cuGraphInstantiate(graph, 0)), side)
    assert x.read() == [1, 2, 3, 4]


def test_other_mistakes_have_their_codes(kernels, side):
    state = CODES.CUDA_ERROR_ILLEGAL_STATE
    assert code(driver.cuStreamEndCapture(side)) == state
    assert code(driver.cuStreamBeginCapture(0, GLOBAL)) == UNSUPPORTED
    assert code(cuda13.cuStreamUpdateCaptureDependencies(side, [], [], 0, 0)) == state
    begin(side)
    assert code(driver.cuStreamBeginCapture(side, GLOBAL)) == state
    assert status(side) == ACTIVE
    end(side)


def test_a_forked_stream_may_be_destroyed_once_it_is_joined(kernels, side, other, events):
    x = Words(4)
    begin(side)
    ok(driver.cuEventRecord(events[0], side))
    ok(driver.cuStreamWaitEvent(other, events[0], 0))
    kernels.launch_set(other, x, 1)
    ok(driver.cuEventRecord(events[1], other))
    ok(driver.cuStreamWaitEvent(side, events[1], 0))
    ok(driver.cuStreamDestroy(other))
    kernels.launch_mix(side, x, x, 0)
    graph = end(side)
    run(ok(driver.cuGraphInstantiate(graph, 0)), side)
    assert x.read() == [31 * (1 + i) + i for i in range(4)]


def test_a_stream_that_is_destroyed_takes_its_capture_along(kernels, side, other):
    begin(side)
    ok(driver.cuStreamDestroy(side))
    ok(driver.cuMemAlloc(64))
    assert code(driver.cuStreamEndCapture(side)) == CODES.CUDA_ERROR_INVALID_HANDLE


def test_a_stream_that_is_destroyed_after_it_was_joined_leaves_its_work(kernels, side, other):
    def captured(*, joined):
        begin(side)
        fork, join = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
        ok(driver.cuEventRecord(fork, side))
        branch = ok(driver.cuStreamCreate(0))
        ok(driver.cuStreamWaitEvent(branch, fork, 0))
        ok(driver.cuMemsetD8Async(cells, 1, 4, branch))
        ok(driver.cuEventRecord(join, branch))
        if joined:
            ok(driver.cuStreamWaitEvent(side, join, 0))
        ok(driver.cuStreamDestroy(branch))
        ok(driver.cuMemsetD8Async(cells, 2, 4, side))
        return driver.cuStreamEndCapture(side)

    cells = ok(driver.cuMemAlloc(4))
    graph = ok(captured(joined=True))
    assert ok(driver.cuGraphGetNodes(graph, 2))[1] == 2
    assert captured(joined=False)[0] == CODES.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
