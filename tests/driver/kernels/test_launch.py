"""Launches: arguments arrive unchanged, shapes are checked, faults are reported."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from helpers.ptx_generators.sample_kernels import FILL, SHARED, STORE_PARAMETERS

from cudasync.driver import (
    Device,
    DeviceBuffer,
    Module,
    Stream,
    current_stream,
    launch,
    memcpy_async,
    memset_async,
    pinned_empty,
)
from cudasync.errors import ClosedError, CudaError


@pytest.fixture
def fill(device):
    return Module.from_ptx(FILL, device=device).kernel("fill")


def words(buffer, stream):
    """The content of a buffer, once the stream is done."""
    back = np.empty(buffer.size_bytes // 4, np.uint32)
    memcpy_async(back, buffer, stream=stream)
    stream.synchronize()
    return back.tolist()


def test_a_kernel_runs_once_per_thread(device, stream, fill):
    buffer = DeviceBuffer(400, device)
    launch(fill, grid=(4,), block=(32,), args=(buffer, 7, np.uint32(100)), stream=stream)
    assert words(buffer, stream) == [7] * 100


def test_a_launch_returns_before_the_kernel_has_run(device, stream, latch, fill):
    buffer = DeviceBuffer(4, device)
    memset_async(buffer, 0, stream=stream)
    latch.hold(stream)
    launch(fill, grid=1, args=(buffer, 7, 1), stream=stream)
    assert not stream.query()
    latch.release()
    assert words(buffer, stream) == [7]


def test_without_a_stream_a_launch_goes_to_the_current_one(device, stream, latch, fill):
    with stream:
        latch.hold()
        launch(fill, grid=1, args=(DeviceBuffer(4, device), 7, 1))
        assert not current_stream().query()
    latch.release()


def test_arguments_of_every_type_arrive(device, stream):
    kernel = Module.from_ptx(STORE_PARAMETERS, device=device).kernel("store")
    buffer, back = DeviceBuffer(64, device), bytearray(64)
    memset_async(buffer, 0, stream=stream)
    pair = struct.pack("<qd", -5, 2.5)
    launch(
        kernel,
        grid=1,
        args=(buffer, True, np.uint16(777), -3, 1.5, np.float64(2.25), np.float64(0.5), pair),
        stream=stream,
    )
    memcpy_async(back, buffer, stream=stream)
    stream.synchronize()
    got = struct.unpack("<B7xH6xi4xf4xddqd", back)
    assert got == (1, 777, -3, 1.5, 2.25, 0.5, -5, 2.5)


def test_a_kernel_without_parameters_runs(device, stream):
    kernel = Module.from_ptx(STORE_PARAMETERS, device=device).kernel("nothing")
    launch(kernel, grid=(2, 2, 2), block=(2, 2, 2), stream=stream)
    stream.synchronize()


def test_prepared_arguments_serve_many_launches(device, stream, fill):
    buffers = [DeviceBuffer(16, device) for _ in range(2)]
    prepared = [fill.pack((buffer, i, 4)) for i, buffer in enumerate(buffers)]
    for _ in range(3):
        for arguments in prepared:
            launch(fill, grid=1, block=4, args=arguments, stream=stream)
    assert [words(buffer, stream) for buffer in buffers] == [[0] * 4, [1] * 4]


def test_prepared_arguments_are_for_the_kernel_that_packed_them(device, stream, fill):
    other = Module.from_ptx(FILL, device=device).kernel("fill")
    prepared = other.pack((DeviceBuffer(4, device), 1, 1))
    with pytest.raises(ValueError, match="another kernel"):
        launch(fill, grid=1, args=prepared, stream=stream)


def test_a_prepared_launch_is_launched_with_what_it_was_prepared_with(device, stream, fill):
    buffers = [DeviceBuffer(16, device) for _ in range(2)]
    arguments = [[buffer, i, 4] for i, buffer in enumerate(buffers)]
    prepared = [fill.prepare(grid=1, block=4, args=args) for args in arguments]
    for args in arguments:
        args[1] = 100
    for each in [*prepared, *prepared]:
        each.on(stream)
    assert [words(buffer, stream) for buffer in buffers] == [[0] * 4, [1] * 4]


def test_a_prepared_launch_is_refused_when_it_is_prepared(device, fill):
    buffer = DeviceBuffer(16, device)
    with pytest.raises(TypeError, match="takes 3 arguments"):
        fill.prepare(grid=1, args=(buffer,))
    with pytest.raises(ValueError, match="grid"):
        fill.prepare(grid=0, args=(buffer, 1, 1))
    with pytest.raises(ValueError, match="argument 2"):
        fill.prepare(grid=1, args=(buffer, 1 << 32, 1))


def test_a_prepared_launch_goes_to_the_current_stream_or_another_librarys(
    device, stream, latch, fill
):
    class Theirs:
        def __cuda_stream__(self):
            return (0, stream.handle)

    buffer = DeviceBuffer(4, device)
    prepared = fill.prepare(grid=1, args=(buffer, 7, 1))
    with stream:
        latch.hold()
        prepared.on()
        assert not stream.query()
    latch.release()
    assert words(buffer, stream) == [7]
    memset_async(buffer, 0, stream=stream)
    prepared.on(Theirs())
    assert words(buffer, stream) == [7]


def test_a_prepared_launch_of_what_is_closed_is_refused(device, stream):
    module = Module.from_ptx(FILL, device=device)
    prepared = module.kernel("fill").prepare(grid=1, args=(DeviceBuffer(4, device), 1, 1))
    other = Stream(device)
    prepared.on(other)
    other.synchronize()
    other.close()
    with pytest.raises(ClosedError, match="stream"):
        prepared.on(other)
    module.close()
    with pytest.raises(ClosedError, match="module"):
        prepared.on(stream)


def test_a_prepared_launch_ends_with_a_reset_of_its_device():
    device = Device(0)
    module = Module.from_ptx(FILL, device=device)
    prepared = module.kernel("fill").prepare(grid=1, args=(DeviceBuffer(4, device), 1, 1))
    old = Stream(device)
    prepared.on(old)
    device.reset()
    for stream in (old, Stream(device)):
        with pytest.raises(ClosedError, match="reset"):
            prepared.on(stream)


def test_a_view_and_pinned_memory_are_taken_for_pointers(device, stream, fill):
    buffer = DeviceBuffer(32, device)
    memset_async(buffer, 0, stream=stream)
    view = buffer.view((4,), np.uint32, offset_bytes=16)
    launch(fill, grid=1, block=4, args=(view, 9, 4), stream=stream)
    assert words(buffer, stream) == [0, 0, 0, 0, 9, 9, 9, 9]
    pinned = pinned_empty(4, np.uint32)
    launch(fill, grid=1, block=4, args=(pinned.ctypes.data, 5, 4), stream=stream)
    stream.synchronize()
    assert pinned.tolist() == [5, 5, 5, 5]


def test_dynamic_shared_memory_is_as_large_as_asked_for(device, stream):
    kernel = Module.from_ptx(SHARED, device=device).kernel("shared")
    buffer = DeviceBuffer(256, device)
    launch(kernel, grid=1, block=64, args=(buffer,), shared_bytes=256, stream=stream)
    assert words(buffer, stream) == list(range(64))


def test_more_shared_memory_than_the_default_is_opted_in(device, stream):
    most = device.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    assert most >= device.attribute("MAX_SHARED_MEMORY_PER_BLOCK")
    kernel = Module.from_ptx(SHARED, device=device).kernel("shared")
    buffer = DeviceBuffer(256, device)
    launch(kernel, grid=1, block=64, args=(buffer,), shared_bytes=most, stream=stream)
    assert words(buffer, stream) == list(range(64))
    with pytest.raises(ValueError, match=f"exceed {most} for a block"):
        launch(kernel, grid=1, block=64, args=(buffer,), shared_bytes=most + 1, stream=stream)


@pytest.mark.loses_device
def test_a_fault_is_told_by_whoever_waits_and_ends_with_a_reset():
    device = Device(0)
    stream = Stream(device)
    kernel = Module.from_ptx(FILL, device=device).kernel("fill")
    buffer = DeviceBuffer(16, device)
    launch(kernel, grid=1, block=32, args=(buffer, 1, 1 << 30), stream=stream)
    launch(kernel, grid=1 << 16, block=1024, args=(buffer, 1, 1 << 30), stream=stream)
    with pytest.raises(CudaError) as caught:
        stream.synchronize()
    assert caught.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert caught.value.sticky
    assert "start a new process" in caught.value.hint
    with pytest.raises(CudaError, match="ILLEGAL_ADDRESS"):
        stream.query()
    # Closing the remaining objects does not raise again.
    buffer.close()
    stream.close()
    device.reset()
    test_a_kernel_runs_once_per_thread(
        device, Stream(device), Module.from_ptx(FILL, device=device).kernel("fill")
    )
