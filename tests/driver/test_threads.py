"""Any thread may use any object: its first call makes the context current there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from helpers.ptx_generators.sample_kernels import FILL

from cudasync.driver import (
    DeviceBuffer,
    Event,
    Module,
    Stream,
    launch,
    memcpy_async,
    memset_async,
)
from cudasync.testing import HostLatch


def in_new_thread(function):
    """The result of `function()` on a thread that has never called the driver."""
    with ThreadPoolExecutor(1) as one:
        return one.submit(function).result(timeout=30)


def test_each_verb_works_as_the_first_call_of_a_thread(device, stream):
    kernel = Module.from_ptx(FILL, device=device).kernel("fill")
    buffer, event, timed = DeviceBuffer(4, device), Event(device), Event(device, timing=True)
    memset_async(buffer, 0, stream=stream)
    timed.record(stream).synchronize()
    host = np.zeros(1, np.uint32)
    prepared = kernel.prepare(grid=1, args=(buffer, 1, 1))
    for verb in (
        lambda: prepared.on(stream),
        lambda: launch(kernel, grid=1, args=(buffer, 1, 1), stream=stream),
        lambda: memcpy_async(host, buffer, stream=stream),
        lambda: memset_async(buffer, 0, stream=stream),
        lambda: stream.record(event),
        lambda: stream.wait(event),
        stream.query,
        stream.synchronize,
        event.query,
        event.synchronize,
        lambda: timed.elapsed_ms(timed),
        device.synchronize,
        lambda: Stream(device).close(),
        lambda: Event(device).close(),
        lambda: DeviceBuffer(8, device).close(),
        lambda: Module.from_ptx(FILL, device=device).close(),
        buffer.close,
    ):
        in_new_thread(verb)


def test_a_thread_that_waits_lets_others_run(stream, latch):
    latch.hold(stream)
    event = stream.record()
    waiting = HostLatch()

    def wait():
        waiting.release()
        event.synchronize()
        return True

    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(wait)
        waiting.wait()
        # This thread runs Python while the other one is inside the driver.
        assert not waited.done()
        latch.release()
        assert waited.result(timeout=30)


def test_many_threads_share_one_kernel_and_each_gets_its_own_arguments(device):
    kernel = Module.from_ptx(FILL, device=device).kernel("fill")
    start = threading.Barrier(4)

    def work(number):
        stream, buffer = Stream(device), DeviceBuffer(400, device)
        start.wait(timeout=30)
        for step in range(50):
            value = 1000 * number + step
            launch(kernel, grid=4, block=32, args=(buffer, value, 100), stream=stream)
        back = np.zeros(100, np.uint32)
        memcpy_async(back, buffer, stream=stream)
        stream.synchronize()
        return set(back.tolist())

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    assert results == [{1000 * number + 49} for number in range(4)]


def test_of_many_closers_one_closes(device):
    streams = [Stream(device) for _ in range(50)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [stream.close() for stream in streams], range(4)))
    assert all(stream.is_closed for stream in streams)
