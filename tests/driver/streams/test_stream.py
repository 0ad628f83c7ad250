"""Streams: order, waits, and the meaning of "current"."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading

import numpy as np
import pytest

from cudasync.driver import (
    LEGACY_STREAM,
    PER_THREAD_STREAM,
    DeviceBuffer,
    Event,
    Stream,
    current_device,
    current_stream,
    memcpy_async,
    memset_async,
    pinned_empty,
)
from cudasync.errors import ClosedError


def test_a_stream_with_nothing_to_do_is_done(stream):
    assert stream.query()
    stream.synchronize()


def test_work_behind_a_latch_is_not_done_until_it_is_released(stream, latch):
    latch.hold(stream)
    assert not stream.query()
    latch.release()
    stream.synchronize()
    assert stream.query()


def test_streams_do_not_wait_for_each_other(device, stream, latch):
    other = Stream(device)
    latch.hold(stream)
    memset_async(DeviceBuffer(64, device), 1, stream=other)
    other.synchronize()
    assert other.query()
    assert not stream.query()


def test_a_wait_for_an_event_holds_later_work_back(device, stream, latch):
    other = Stream(device)
    latch.hold(stream)
    other.wait(stream.record())
    assert not other.query()
    latch.release()
    other.synchronize()
    assert stream.query()


def test_a_wait_for_a_stream_is_a_wait_for_its_work_so_far(device, stream, latch):
    other, behind = Stream(device), Stream(device)
    behind.wait(other)
    latch.hold(other)
    assert not other.query()
    behind.synchronize()
    stream.wait(other)
    assert not stream.query()
    latch.release()
    stream.synchronize()


def test_a_wait_takes_the_recording_there_is_when_it_is_called(device, stream, latch):
    other = Stream(device)
    event = other.record()
    stream.wait(event)
    latch.hold(other)
    other.record(event)
    stream.synchronize()
    assert not event.query()


def test_an_event_never_recorded_is_not_waited_for(device, stream):
    stream.wait(Event(device))
    stream.synchronize()


def test_the_current_stream_is_the_innermost_entered(device, stream):
    outside = current_stream(device)
    assert outside.handle == LEGACY_STREAM.handle
    inner = Stream(device)
    with stream:
        assert current_stream() is stream
        with inner, stream:
            assert current_stream(device) is stream
        assert current_stream() is stream
    assert current_stream(device) is outside


def test_the_current_stream_belongs_to_its_thread(device, stream):
    seen = []
    with stream:
        thread = threading.Thread(target=lambda: seen.append(current_stream(device)))
        thread.start()
        thread.join()
    # Python's rule for context variables. Free-threaded builds have the opposite default.
    assert (seen[0] is stream) is bool(getattr(sys.flags, "thread_inherit_context", 0))


def test_the_current_stream_belongs_to_its_task(device):
    streams = [Stream(device), Stream(device)]

    async def inside(stream, meeting):
        with stream:
            await meeting.wait()
            return current_stream() is stream

    async def both():
        meeting = asyncio.Barrier(2)
        return await asyncio.gather(*(inside(stream, meeting) for stream in streams))

    assert asyncio.run(both()) == [True, True]


def test_the_device_of_the_current_stream_is_the_current_device(device, stream):
    with stream:
        assert current_device() is device
    with LEGACY_STREAM:
        assert current_device() is device


def test_what_names_no_stream_goes_to_the_current_one(device, stream, latch):
    buffer = DeviceBuffer(64, device)
    with stream:
        latch.hold()
        memset_async(buffer, 7)
        ready = Event(device).record()
    assert not ready.query()
    latch.release()
    ready.synchronize()


@pytest.mark.parametrize("default", [LEGACY_STREAM, PER_THREAD_STREAM])
def test_the_default_streams_do_work(device, default):
    buffer, back = DeviceBuffer(4, device), bytearray(4)
    memset_async(buffer, 9, stream=default)
    memcpy_async(back, buffer, stream=default)
    default.synchronize()
    assert bytes(back) == b"\t\t\t\t"
    assert default.query()
    assert default.device is device
    default.close()
    assert not default.is_closed


def test_a_native_function_is_called_once_earlier_work_is_done(stream, latch):
    libc = ctypes.CDLL(None, use_errno=True)
    semaphore = ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    sem_post = ctypes.cast(libc.sem_post, ctypes.c_void_p).value
    latch.hold(stream)
    stream.launch_host(sem_post, ctypes.addressof(semaphore))
    assert libc.sem_trywait(semaphore) != 0
    latch.release()
    stream.synchronize()
    assert libc.sem_trywait(semaphore) == 0
    libc.sem_destroy(semaphore)


def test_a_copy_keeps_its_host_operand_alive_until_it_has_run(device, stream, latch):
    target = DeviceBuffer(4096, device)
    latch.hold(stream)
    freed = threading.Event()

    class Watched(np.ndarray):
        def __del__(self):
            freed.set()

    source = pinned_empty(4096, np.uint8).view(Watched)
    memcpy_async(target, source, stream=stream)
    del source
    assert not freed.is_set()
    latch.release()
    stream.synchronize()
    assert freed.is_set()


def test_what_a_stream_keeps_is_bounded_however_the_program_waits(device, stream):
    target = DeviceBuffer(8, device)
    for _ in range(1000):
        memcpy_async(target, np.zeros(8, np.uint8), stream=stream)
        stream.record().synchronize()
    assert len(stream._in_flight) < 200


def test_closing_twice_is_harmless_and_use_after_it_is_an_error(device):
    stream = Stream(device)
    stream.close()
    stream.close()
    assert stream.is_closed
    for use in (
        stream.synchronize,
        stream.query,
        stream.record,
        stream.__cuda_stream__,
        lambda: stream.handle,
        lambda: stream.wait(stream),
        lambda: memset_async(DeviceBuffer(4, device), 0, stream=stream),
    ):
        with pytest.raises(ClosedError, match="stream is closed"):
            use()
    assert "closed" in repr(stream)


def test_a_stream_closed_with_work_in_it_still_does_the_work(device, latch):
    stream, source, back = Stream(device), pinned_empty(64, np.uint8), pinned_empty(64, np.uint8)
    source[:] = range(64)
    buffer = DeviceBuffer(64, device)
    latch.hold(stream)
    memcpy_async(buffer, source, stream=stream)
    memcpy_async(back, buffer, stream=stream)
    done = stream.record()
    latch.release()
    stream.close()
    done.synchronize()
    assert back.tolist() == list(range(64))


def test_leaving_streams_out_of_order_is_an_error(device, stream):
    other = Stream(device)
    stream.__enter__()
    other.__enter__()
    with pytest.raises(RuntimeError, match="reverse order"):
        stream.__exit__(None, None, None)
    other.__exit__(None, None, None)
    stream.__exit__(None, None, None)
