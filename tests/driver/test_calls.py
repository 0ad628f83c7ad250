"""The driver calls of each verb in the steady state: only the one that it is named for."""

from __future__ import annotations

import numpy as np
from helpers.driver.call_counts import counted_calls
from helpers.ptx_generators.sample_kernels import FILL

from cudasync.driver import DeviceBuffer, Event, Module, Stream, launch, memcpy_async, pinned_empty


def calls_of(verb):
    """The driver calls of the second `verb()`."""
    verb()
    with counted_calls() as calls:
        verb()
    return dict(calls)


def test_a_launch_is_one_call(device, stream):
    kernel = Module.from_ptx(FILL, device=device).kernel("fill")
    args = (DeviceBuffer(4, device), np.uint32(1), np.uint32(1))
    prepared = kernel.pack(args)
    whole = kernel.prepare(grid=(1,), args=args)
    one = {"cuLaunchKernel": 1}
    assert calls_of(lambda: whole.on(stream)) == one
    assert calls_of(lambda: launch(kernel, grid=(1,), args=args, stream=stream)) == one
    assert calls_of(lambda: launch(kernel, grid=(1,), args=prepared, stream=stream)) == one


def test_recording_and_waiting_are_one_call_each(device, stream):
    event, other = Event(device), Stream(device)
    assert calls_of(lambda: stream.record(event)) == {"cuEventRecord": 1}
    assert calls_of(lambda: event.record(stream)) == {"cuEventRecord": 1}
    assert calls_of(lambda: other.wait(event)) == {"cuStreamWaitEvent": 1}
    assert calls_of(lambda: other.wait(stream)) == {"cuEventRecord": 1, "cuStreamWaitEvent": 1}


def test_asking_and_synchronizing_are_one_call_each(stream):
    event = stream.record()
    assert calls_of(event.query) == {"cuEventQuery": 1}
    assert calls_of(event.synchronize) == {"cuEventSynchronize": 1}
    assert calls_of(stream.query) == {"cuStreamQuery": 1}
    assert calls_of(stream.synchronize) == {"cuStreamSynchronize": 1}


def test_a_copy_is_one_call(device, stream):
    a, b, host = DeviceBuffer(64, device), DeviceBuffer(64, device), pinned_empty(64, np.uint8)
    assert calls_of(lambda: memcpy_async(a, host, stream=stream)) == {"cuMemcpyHtoDAsync": 1}
    assert calls_of(lambda: memcpy_async(host, a, stream=stream)) == {"cuMemcpyDtoHAsync": 1}
    assert calls_of(lambda: memcpy_async(a, b, stream=stream)) == {"cuMemcpyDtoDAsync": 1}


def test_what_a_device_is_is_asked_once(device):
    assert calls_of(lambda: (device.name, device.compute_capability, device.is_software)) == {}
