"""A program captures a stream while the library does its bookkeeping: the capture stays valid.

The driver refuses calls that might disturb a capture, from any caller, and invalidates the capture.
The set of these calls depends on the mode and on the thread.
"""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.arrays.foreign_arrays import pinned
from helpers.driver.call_results import ok
from helpers.driver.stream_capture import (
    ACTIVE,
    GLOBAL,
    RELAXED,
    THREAD_LOCAL,
    begin,
    end,
    is_invalid_until_its_end,
    status,
)

from cudasync.driver import DeviceBuffer, Event, PinnedBuffer, Stream, memcpy_async
from cudasync.driver.graph import Graph
from cudasync.driver.memory.in_flight import BATCH_COUNT
from cudasync.driver.streams import open_captures
from cudasync.errors import CudaError

MODES = pytest.mark.parametrize(
    "mode", [GLOBAL, THREAD_LOCAL, RELAXED], ids=["global", "thread-local", "relaxed"]
)
# Enough that the objects kept for copies are checked more than once.
MANY = 3 * BATCH_COUNT + 1


def on_this_thread(act):
    act()


def on_another_thread(act):
    failed = []

    def run():
        try:
            act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failed, failed


THREADS = pytest.mark.parametrize("run", [on_this_thread, on_another_thread])


@contextmanager
def captured(stream, mode):
    """A capture of one copy. At the end it is valid, and its graph copies."""
    target, source = DeviceBuffer(16, stream.device), pinned(range(4), np.int32)
    seven = pinned([7], np.int32)
    raw = driver.CUstream(stream.handle)
    begin(raw, mode)
    memcpy_async(target, source, stream=stream)
    yield
    assert status(raw) == ACTIVE
    memcpy_async(target, seven, stream=stream, size_bytes=4)
    graph = end(raw)
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphLaunch(executable, raw))
    back = np.zeros(4, np.int32)
    memcpy_async(back, target, stream=stream)
    stream.synchronize()
    assert back.tolist() == [7, 1, 2, 3]
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))


def copy_often(device, stream):
    target, source = DeviceBuffer(8, device), pinned([1, 2], np.int32)
    for _ in range(MANY):
        memcpy_async(target, source, stream=stream)


def of_another(device, stream):
    """Pinned copies on another of our streams, which already has copies in flight."""
    other = Stream(device)
    copy_often(device, other)
    return lambda: copy_often(device, other)


def of_a_borrowed(device, stream):
    """Pinned copies on another library's stream."""
    theirs = Stream(device)
    borrowed = Stream.from_handle(theirs.handle)
    copy_often(device, borrowed)

    def act(keep=theirs):
        copy_often(device, borrowed)

    return act


def of_the_legacy(device, stream):
    """Pinned copies on the legacy default stream, which no capture of ours includes."""
    return lambda: copy_often(device, None)


def on_new_things(device, stream):
    """Objects made and dropped: driver garbage from before the capture and from during it."""

    def litter():
        for _ in range(3):
            copy_often(device, Stream(device))
            Event(device)
            PinnedBuffer(16, device)
            DeviceBuffer(16, device)
        gc.collect()

    litter()

    def act():
        litter()
        DeviceBuffer(16, device)

    return act


def on_a_stream_that_goes(device, stream):
    """Streams that are closed or dropped with copies in flight."""
    made = [Stream(device), Stream(device)]
    for each in made:
        copy_often(device, each)

    def act():
        made.pop().close()
        made.clear()
        gc.collect()
        Event(device)

    return act


def on_graphs_and_pools(device, stream):
    """Executable graphs that are made and closed, memory in the order of another stream."""
    side, graph = Stream(device), Graph(device)
    first = DeviceBuffer(64, stream=side)
    executable = graph.instantiate()

    def act():
        executable.close()
        graph.instantiate()
        graph.instantiate().close()
        gc.collect()
        first.close()
        DeviceBuffer(64, stream=side).close()
        device.memory()

    return act


DOINGS = pytest.mark.parametrize(
    "doing",
    [
        of_another,
        of_a_borrowed,
        of_the_legacy,
        on_new_things,
        on_a_stream_that_goes,
        on_graphs_and_pools,
    ],
    ids=lambda doing: doing.__name__,
)


@MODES
@THREADS
@DOINGS
def test_a_capture_stays_whole_while_we_keep_our_books(device, stream, doing, run, mode):
    act = doing(device, stream)
    with captured(stream, mode):
        run(act)
    device.synchronize()


@MODES
@pytest.mark.parametrize("is_borrowed", [False, True])
def test_a_capture_of_many_copies_stays_whole(device, stream, mode, is_borrowed):
    on = Stream.from_handle(stream.handle) if is_borrowed else stream
    copy_often(device, on)
    with captured(stream, mode):
        copy_often(device, on)
    # The next copies check the objects that were kept before the capture.
    copy_often(device, on)
    stream.synchronize()


@MODES
def test_a_stream_that_joined_a_capture_is_captured_too(device, stream, mode):
    side = Stream(device)
    with captured(stream, mode):
        side.wait(stream)
        copy_often(device, side)
        stream.wait(side)
    side.synchronize()


def test_what_was_in_flight_before_a_capture_is_kept_until_the_stream_has_passed_it(
    device, stream, latch
):
    latch.hold(stream)
    target, source = DeviceBuffer(8, device), PinnedBuffer(8, device)
    source.view(2, np.int32)[:] = [3, 4]
    memcpy_async(target, source, stream=stream)
    del source
    with captured(stream, RELAXED):
        copy_often(device, stream)
        gc.collect()
        latch.release()
    back = np.zeros(2, np.int32)
    memcpy_async(back, target, stream=stream)
    stream.synchronize()
    assert back.tolist() == [3, 4]


def test_the_mode_of_the_thread_is_what_it_was(device, stream):
    for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
        before = ok(driver.cuThreadExchangeStreamCaptureMode(mode))
        try:
            of_another(device, stream)()
            on_new_things(device, stream)()
        finally:
            assert ok(driver.cuThreadExchangeStreamCaptureMode(before)) == mode


def test_a_book_that_is_kept_the_usual_way_is_found(device, stream, monkeypatch):
    """The check can fail: without the relaxed thread mode, an event query invalidates a capture."""
    act = of_another(device, stream)
    monkeypatch.setattr(open_captures, "exchange", lambda mode: mode)
    raw = driver.CUstream(stream.handle)
    begin(raw, GLOBAL)
    with pytest.raises(CudaError, match="CAPTURE_UNSUPPORTED"):
        act()
    assert is_invalid_until_its_end(raw)
