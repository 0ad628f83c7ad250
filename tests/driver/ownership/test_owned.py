"""Unclosed handles: what the garbage collector may do, and when the handles really end."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_counts import counted_calls
from helpers.ptx_generators.sample_kernels import FILL

from cudasync.driver import (
    DeviceBuffer,
    Event,
    Module,
    PinnedBuffer,
    Stream,
    launch,
    memcpy_async,
    pinned_empty,
)


@pytest.fixture
def frequent_collections():
    """The collector runs after every few allocations, and so also inside driver calls."""
    before = gc.get_threshold()
    gc.set_threshold(3, 1, 1)
    yield
    gc.set_threshold(*before)


def one_of_each(device, stream):
    return [
        Stream(device),
        Event(device),
        DeviceBuffer(64, device),
        DeviceBuffer(64, stream=stream),
        PinnedBuffer(64, device),
        Module.from_ptx(FILL, device=device),
    ]


def test_a_finaliser_calls_no_driver_function(device, stream):
    things = one_of_each(device, stream)
    with counted_calls() as calls:
        del things
        gc.collect()
    assert not calls


def test_what_was_forgotten_is_destroyed_at_the_next_synchronize(device, stream):
    device.synchronize()
    one_of_each(device, stream)
    gc.collect()
    with counted_calls() as calls:
        device.synchronize()
    assert calls["cuCtxSynchronize"] == 1
    assert not device.context.garbage
    assert not device.context.blocking_garbage


def test_the_collector_may_run_inside_of_any_driver_call(device, stream, frequent_collections):
    kernel = Module.from_ptx(FILL, device=device).kernel("fill")
    buffer, back = DeviceBuffer(16, device), pinned_empty(4, np.uint32)
    for step in range(30):
        cycle = [Stream(device), Event(device), DeviceBuffer(64, device), PinnedBuffer(64, device)]
        cycle.append(cycle)
        del cycle
        launch(kernel, grid=1, block=4, args=(buffer, step, 4), stream=stream)
        stream.wait(stream.record())
    memcpy_async(back, buffer, stream=stream)
    stream.synchronize()
    assert back.tolist() == [29] * 4


def test_a_forgotten_stream_still_does_its_work(device, stream, latch):
    forgotten, back = Stream(device), pinned_empty(4, np.uint8)
    buffer = DeviceBuffer(4, device)
    latch.hold(forgotten)
    memcpy_async(buffer, bytes([1, 2, 3, 4]), stream=forgotten)
    memcpy_async(back, buffer, stream=forgotten)
    done = forgotten.record()
    del forgotten
    gc.collect()
    Stream(device)
    assert not done.query()
    latch.release()
    done.synchronize()
    assert back.tolist() == [1, 2, 3, 4]
    device.synchronize()
    assert len(device.context.blocking_garbage) == 0


def test_host_memory_of_a_closed_stream_is_kept_until_the_copy_has_run(device, latch):
    stream, buffer = Stream(device), DeviceBuffer(1 << 16, device)
    latch.hold(stream)
    for value in range(4):
        source = pinned_empty(1 << 16, np.uint8)
        source[:] = value
        memcpy_async(buffer, source, stream=stream)
        del source
    done = stream.record()
    latch.release()
    stream.close()
    done.synchronize()
    back = np.empty(1 << 16, np.uint8)
    other = Stream(device)
    memcpy_async(back, buffer, stream=other)
    other.synchronize()
    assert (back == 3).all()


def test_what_was_kept_for_work_goes_when_somebody_else_resets_the_device(device):
    class Operand:
        pass

    operand = Operand()
    gone = weakref.ref(operand)
    stream = Stream(device)
    device.context.keep_behind(stream.record(), operand)
    del operand
    assert not driver.cuDevicePrimaryCtxReset(device.ordinal)[0]
    # On a real GPU nothing checks the handles of the lost context, so the library resets there.
    if not device.is_software:
        device.reset()
    device.use()
    device.synchronize()
    assert gone() is None
    device.reset()
