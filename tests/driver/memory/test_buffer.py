"""Device memory: its owner, its end, and its view by other libraries."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from cudasync.driver import DeviceBuffer, Stream, memcpy_async, memset_async, pinned_empty
from cudasync.errors import ClosedError, CudaError


def test_a_buffer_has_an_address_and_a_size(device):
    buffer = DeviceBuffer(1000, device)
    assert buffer.ptr % 256 == 0
    assert buffer.size_bytes == 1000
    assert buffer.device is device


def test_a_buffer_of_no_bytes_is_allowed(device, stream):
    buffer = DeviceBuffer(0, device)
    memcpy_async(buffer, b"", stream=stream)
    memcpy_async(bytearray(), buffer, stream=stream)
    memset_async(buffer, 0, stream=stream)
    stream.synchronize()
    assert buffer.view((0, 3), np.float32).__cuda_array_interface__["data"] == (0, False)


def test_buffers_do_not_overlap(device):
    a, b = DeviceBuffer(100, device), DeviceBuffer(100, device)
    assert a.ptr + 100 <= b.ptr or b.ptr + 100 <= a.ptr


def test_a_buffer_of_a_stream_is_allocated_and_freed_in_its_order(stream, latch):
    latch.hold(stream)
    back = pinned_empty(64, np.uint8)
    with_stream = DeviceBuffer(64, stream=stream)
    memset_async(with_stream, 3, stream=stream)
    memcpy_async(back, with_stream, stream=stream)
    with_stream.close()
    assert with_stream.is_closed
    latch.release()
    stream.synchronize()
    assert back.tolist() == [3] * 64


def test_a_buffer_may_be_freed_in_the_order_of_another_stream(device, stream):
    other = Stream(device)
    buffer = DeviceBuffer(64, stream=stream)
    memset_async(buffer, 3, stream=stream)
    other.wait(stream)
    buffer.close(other)
    other.synchronize()


def test_a_buffer_outlives_the_stream_that_it_was_allocated_on(device):
    stream = Stream(device)
    buffer = DeviceBuffer(64, stream=stream)
    stream.close()
    buffer.view((64,), np.uint8)
    device.synchronize()
    with pytest.raises(ClosedError, match="stream is closed"):
        buffer.close()
    assert not buffer.is_closed
    buffer.close(Stream(device))


def test_closing_twice_is_harmless_and_use_after_it_is_an_error(device, stream):
    buffer = DeviceBuffer(8, device)
    view = buffer.view((2,), np.float32)
    buffer.close()
    buffer.close()
    for use in (
        lambda: buffer.ptr,
        lambda: view.ptr,
        lambda: view.__cuda_array_interface__,
        lambda: memcpy_async(buffer, bytes(8), stream=stream),
        lambda: memcpy_async(bytearray(8), view, stream=stream),
    ):
        with pytest.raises(ClosedError, match="buffer is closed"):
            use()
    assert "closed" in repr(buffer)


def test_a_forgotten_buffer_blocks_nobody_and_is_freed_once_the_device_is_idle(
    device, stream, latch
):
    device.synchronize()
    latch.hold(stream)
    del_me = DeviceBuffer(64, device)
    memset_async(del_me, 1, stream=stream)
    del del_me
    gc.collect()
    # None of these may wait for the held stream.
    DeviceBuffer(64, device)
    Stream(device).synchronize()
    assert device.context.blocking_garbage
    latch.release()
    device.synchronize()
    assert not device.context.blocking_garbage


def test_buffers_dropped_in_a_loop_do_not_pile_up(device):
    device.synchronize()
    for _ in range(100):
        DeviceBuffer(1 << 16, device)
    assert len(device.context.blocking_garbage) < 5


def test_more_memory_than_there_is_is_an_error_that_helps(device):
    with pytest.raises(CudaError, match="close buffers") as caught:
        DeviceBuffer(1 << 60, device)
    assert caught.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert caught.value.code == 2
    assert not caught.value.sticky


def test_a_view_tells_its_place_to_other_libraries(device):
    buffer = DeviceBuffer(100, device)
    view = buffer.view((4, 3), np.int16, offset_bytes=8)
    assert view.ptr == buffer.ptr + 8
    assert view.size_bytes == 24
    assert view.__cuda_array_interface__ == {
        "version": 3,
        "shape": (4, 3),
        "typestr": "<i2",
        "data": (buffer.ptr + 8, False),
        "strides": None,
        "stream": None,
    }
    assert view.__dlpack_device__() == (2, device.ordinal)


def test_a_view_keeps_its_buffer_alive(device):
    view = DeviceBuffer(16, device).view(4, np.float32)
    gc.collect()
    assert view.ptr


@pytest.mark.parametrize(
    ("shape", "dtype", "offset"),
    [((26,), "f4", 0), ((25,), "f4", 1), ((1,), "u1", -1), ((-1,), "u1", 0), ((1,), "O", 0)],
)
def test_a_view_that_does_not_fit_is_a_value_error(device, shape, dtype, offset):
    with pytest.raises(ValueError, match=r"bytes|extent|objects"):
        DeviceBuffer(100, device).view(shape, dtype, offset_bytes=offset)


def test_a_negative_size_is_a_value_error(device):
    with pytest.raises(ValueError, match="-1 bytes"):
        DeviceBuffer(-1, device)
