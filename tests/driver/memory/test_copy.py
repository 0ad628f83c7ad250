"""Copies and fills: the inferred direction, and the accepted operands."""

from __future__ import annotations

import array
import ctypes
import threading

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given
from hypothesis import strategies as st

from cudasync.driver import (
    Device,
    DeviceBuffer,
    PinnedBuffer,
    Stream,
    device_count,
    memcpy_async,
    memset_async,
    pinned_empty,
)


class Foreign:
    """An array of another library, known only by its interface."""

    def __init__(self, buffer, shape, typestr="|u1", strides=None, read_only=False):
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": typestr,
            "strides": strides,
            "data": (buffer.ptr, read_only),
        }


DATA = bytes(range(48))

TO_HOST = {
    "a bytearray": lambda: bytearray(48),
    "a memoryview": lambda: memoryview(bytearray(48)),
    "a NumPy array": lambda: np.zeros((6, 4), np.int16),
    "an array.array": lambda: array.array("i", [0] * 12),
    "a ctypes array": lambda: (ctypes.c_double * 6)(),
    "pinned memory": lambda: pinned_empty((12,), np.float32),
}


@pytest.mark.parametrize("make", TO_HOST.values(), ids=TO_HOST)
def test_bytes_come_back_through_any_host_object(device, stream, make):
    buffer, back = DeviceBuffer(48, device), make()
    memcpy_async(buffer, DATA, stream=stream)
    memcpy_async(back, buffer, stream=stream)
    stream.synchronize()
    assert bytes(back) == DATA
    memset_async(buffer, 0, stream=stream)
    memcpy_async(buffer, back, stream=stream)
    again = bytearray(48)
    memcpy_async(again, buffer, stream=stream)
    stream.synchronize()
    assert bytes(again) == DATA


TO_DEVICE = {
    "a buffer": lambda buffer: buffer,
    "a view": lambda buffer: buffer.view((4, 3), np.int32),
    "another library's array": lambda buffer: Foreign(buffer, (48,)),
    "one with strides": lambda buffer: Foreign(buffer, (2, 6), "<f4", (24, 4)),
}


@pytest.mark.parametrize("target", TO_DEVICE.values(), ids=TO_DEVICE)
@pytest.mark.parametrize("source", TO_DEVICE.values(), ids=TO_DEVICE)
def test_device_memory_is_copied_on_the_device(device, stream, source, target):
    a, b, back = DeviceBuffer(48, device), DeviceBuffer(48, device), bytearray(48)
    memcpy_async(source(a), DATA, stream=stream)
    memcpy_async(target(b), source(a), stream=stream)
    memcpy_async(back, target(b), stream=stream)
    stream.synchronize()
    assert bytes(back) == DATA


def test_host_memory_is_copied_to_host_memory_in_stream_order(device, stream, latch):
    source, target = pinned_empty(4, np.uint8), pinned_empty(4, np.uint8)
    buffer = DeviceBuffer(4, device)
    source[:], target[:] = 0, 0
    latch.hold(stream)
    memset_async(buffer, 1, stream=stream)
    memcpy_async(source, buffer, stream=stream)
    # The driver does such a copy during the call, so another thread releases the stream.
    releasing = threading.Thread(target=latch.release)
    releasing.start()
    memcpy_async(target, source, stream=stream)
    assert target.tolist() == [1, 1, 1, 1]
    releasing.join()
    stream.synchronize()


def test_a_pinned_buffer_is_an_operand_itself(device, stream):
    pinned, buffer = PinnedBuffer(8, device), DeviceBuffer(8, device)
    pinned.view(8, np.uint8)[:] = range(8)
    back = bytearray(8)
    memcpy_async(buffer, pinned, stream=stream)
    memcpy_async(back, buffer, stream=stream)
    stream.synchronize()
    assert bytes(back) == bytes(range(8))


def test_memory_of_another_device_is_copied_from_device_to_device():
    """With one device, the copy stays on it."""
    first, last = Device(0), Device(device_count() - 1)
    a, b, back = DeviceBuffer(48, first), DeviceBuffer(48, last), bytearray(48)
    stream = Stream(first)
    memcpy_async(a, DATA, stream=stream)
    memcpy_async(b, a, stream=stream)
    memcpy_async(back, b, stream=stream)
    stream.synchronize()
    assert bytes(back) == DATA


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 120))
def test_a_part_is_copied_from_the_start(target_size, source_size, size):
    device = Device(0)
    stream = Stream(device)
    target, back = DeviceBuffer(target_size, device), bytearray(target_size)
    memset_async(target, 255, stream=stream)
    source = bytes(i % 251 for i in range(source_size))
    if size > min(target_size, source_size):
        with pytest.raises(ValueError, match=f"{size}.*{target_size}.*{source_size}"):
            memcpy_async(target, source, stream=stream, size_bytes=size)
        size = 0
    else:
        memcpy_async(target, source, stream=stream, size_bytes=size)
    memcpy_async(back, target, stream=stream)
    stream.synchronize()
    assert bytes(back) == source[:size] + b"\xff" * (target_size - size)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (0xA5, b"\xa5"),
        (np.uint8(3), b"\3"),
        (np.int16(-2), b"\xfe\xff"),
        (np.float32(1.0), b"\0\0\x80\x3f"),
    ],
)
def test_a_fill_repeats_the_bytes_of_its_value(device, stream, value, pattern):
    buffer, back = DeviceBuffer(16, device), bytearray(16)
    memset_async(buffer, 0xEE, stream=stream)
    memset_async(buffer, value, stream=stream, size_bytes=8)
    memcpy_async(back, buffer, stream=stream)
    stream.synchronize()
    assert bytes(back) == (pattern * 8)[:8] + b"\xee" * 8


def test_a_copy_takes_the_streams_of_other_libraries(device, stream):
    class Other:
        def __cuda_stream__(self):
            return (0, stream.handle)

    buffer, back = DeviceBuffer(48, device), bytearray(48)
    memcpy_async(buffer, DATA, stream=Other())
    memcpy_async(back, buffer, stream=driver.CUstream(stream.handle))
    stream.synchronize()
    assert bytes(back) == DATA


def test_arrays_without_the_buffer_protocol_are_copied_too(device, stream):
    dates = np.array(["2026-11-20", "1970-01-01"], dtype="datetime64[D]")
    buffer, back = DeviceBuffer(dates.nbytes, device), np.zeros_like(dates)
    memcpy_async(buffer, dates, stream=stream)
    memcpy_async(back, buffer, stream=stream)
    stream.synchronize()
    assert (back == dates).all()


def test_a_view_of_part_of_an_array_is_copied_from_where_it_lies(device, stream):
    rows, buffer = np.arange(12, dtype=np.uint8).reshape(3, 4), DeviceBuffer(4, device)
    memcpy_async(buffer, rows[1], stream=stream)
    memcpy_async(rows[2], buffer, stream=stream)
    memcpy_async(memoryview(rows.reshape(12))[:4], np.full(4, 9, np.uint8), stream=stream)
    stream.synchronize()
    assert rows.tolist() == [[9] * 4, [4, 5, 6, 7], [4, 5, 6, 7]]
