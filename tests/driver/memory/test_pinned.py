"""Page-locked memory: arrays in it, and its lifetime."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers.concurrency.thread_crew import hasty, together

from cudasync.driver import DeviceBuffer, PinnedBuffer, memcpy_async, pinned_empty
from cudasync.errors import ClosedError


def test_a_pinned_array_is_a_numpy_array(device):
    array = pinned_empty((3, 4), np.float32)
    array[:] = 2.5
    assert array.shape == (3, 4)
    assert array.dtype == np.float32
    assert array.sum() == 30
    assert array.flags.c_contiguous
    assert array.flags.writeable


@pytest.mark.parametrize("shape", [0, (0, 5), 7, ()])
def test_any_shape_will_do(device, shape):
    array = pinned_empty(shape, np.int64)
    array[...] = 1
    assert array.sum() == array.size


def test_the_memory_lives_as_long_as_an_array_upon_it(device):
    row = pinned_empty((100, 100), np.float64)[50]
    row[:] = 4.0
    gc.collect()
    device.synchronize()
    DeviceBuffer(8, device)
    assert (row == 4.0).all()


def test_dropping_the_last_array_gives_the_memory_back_without_the_collector(device):
    device.synchronize()
    gc.disable()
    try:
        array = pinned_empty(1000, np.uint8)
        before = len(device.context.blocking_garbage)
        del array
        assert len(device.context.blocking_garbage) == before + 1
    finally:
        gc.enable()
    device.synchronize()


def test_a_copy_from_pinned_memory_reads_it_when_the_stream_gets_there(device, stream, latch):
    source, back = pinned_empty(4, np.uint8), pinned_empty(4, np.uint8)
    buffer = DeviceBuffer(4, device)
    source[:] = 1
    latch.hold(stream)
    memcpy_async(buffer, source, stream=stream)
    memcpy_async(back, buffer, stream=stream)
    source[:] = 2
    latch.release()
    stream.synchronize()
    assert back.tolist() == [2, 2, 2, 2]


def test_closing_is_refused_while_arrays_are_upon_it(device):
    buffer = PinnedBuffer(64, device)
    array = buffer.view((16,), np.float32)
    with pytest.raises(ValueError, match="arrays still use"):
        buffer.close()
    assert not buffer.is_closed
    del array
    buffer.close()
    buffer.close()
    for use in (lambda: buffer.ptr, lambda: buffer.view(1, np.uint8)):
        with pytest.raises(ClosedError):
            use()


def test_closing_is_refused_whichever_threads_made_the_arrays(device):
    for _ in range(60):
        buffer, kept = PinnedBuffer(256, device), []

        def view(buffer=buffer, kept=kept):
            kept.append(buffer.view((8,), np.uint8))

        with hasty():
            together(view, view, view)
        while kept:
            with pytest.raises(ValueError, match="still use"):
                buffer.close()
            kept.pop()
        buffer.close()


def test_a_view_past_the_end_is_a_value_error(device):
    with pytest.raises(ValueError, match="64 bytes"):
        PinnedBuffer(64, device).view((17,), np.float32)
    with pytest.raises(ValueError, match="-1"):
        PinnedBuffer(-1, device)
    with pytest.raises(ValueError, match="extent"):
        pinned_empty((2, -1), np.uint8)
