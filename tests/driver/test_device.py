"""Devices, and the current device."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
from cuda.bindings import driver

from cudasync.driver import (
    Device,
    DeviceBuffer,
    Stream,
    current_device,
    current_stream,
    device_count,
)
from cudasync.driver.device import driver_version
from cudasync.errors import ClosedError, CudaError


def test_there_is_at_least_one_device():
    assert device_count() >= 1


def test_a_device_says_what_it_is(device):
    assert device.ordinal == 0
    assert device.name
    assert device.compute_capability >= (5, 0)
    assert isinstance(device.is_software, bool)


def test_a_device_says_how_much_memory_it_has_and_holds(device):
    before = device.memory()
    buffer = DeviceBuffer(1 << 20, device)
    during = device.memory()
    buffer.close()
    assert 0 < during.free_bytes <= before.free_bytes <= before.total_bytes
    assert min(before.held_bytes, during.held_bytes, device.memory().held_bytes) >= 0


def test_a_device_is_one_object_per_ordinal(device):
    assert Device(0) is device
    assert copy.copy(device) is device
    assert pickle.loads(pickle.dumps(device)) is device


def test_the_driver_says_which_cuda_it_speaks():
    major, minor = driver_version()
    assert major >= 11
    assert 0 <= minor < 100


@pytest.mark.parametrize("ordinal", [-1, 1000])
def test_an_ordinal_that_no_device_has_is_a_value_error(ordinal):
    with pytest.raises(ValueError, match="no device") as refused:
        Device(ordinal)
    remedy = "CUDASYNC_SOFTGPU_DEVICES=" if Device(0).is_software else "CUDA_VISIBLE_DEVICES"
    assert (remedy in str(refused.value)) == (ordinal > 0)


def test_an_ordinal_is_an_integer():
    with pytest.raises(TypeError):
        Device("0")


def test_an_attribute_that_cuda_does_not_have_is_a_value_error(device):
    with pytest.raises(ValueError, match="NUMBER_OF_WHEELS"):
        device.attribute("NUMBER_OF_WHEELS")


def test_the_device_used_is_the_current_one_on_its_thread_only(device):
    device.use()
    assert current_device() is device
    seen = []
    thread = threading.Thread(target=lambda: seen.append(current_device()))
    thread.start()
    thread.join()
    assert seen == [Device(0)]


def test_synchronize_waits_for_all_streams(device, latch):
    streams = [Stream(device) for _ in range(3)]
    for stream in streams:
        latch.hold(stream)
    assert not any(stream.query() for stream in streams)
    latch.release()
    device.synchronize()
    assert all(stream.query() for stream in streams)


def test_a_driver_that_gives_no_context_after_a_fault_is_said(device, monkeypatch):
    """As an H200's driver does: the reset succeeds, and the fault is repeated from then on."""
    Stream(device)
    device.reset()
    retain = driver.cuDevicePrimaryCtxRetain
    misaligned = driver.CUresult.CUDA_ERROR_MISALIGNED_ADDRESS
    monkeypatch.setattr(driver, "cuDevicePrimaryCtxRetain", lambda _: (misaligned, None))
    for _ in range(2):
        with pytest.raises(CudaError, match="start a new process") as caught:
            Stream(device)
        assert caught.value.sticky
        assert "reset()" not in str(caught.value)
    monkeypatch.setattr(driver, "cuDevicePrimaryCtxRetain", retain)
    Stream(device)


def test_reset_closes_everything_made_on_the_device_and_it_begins_anew(device):
    stream, buffer = Stream(device), DeviceBuffer(64, device)
    event = stream.record()
    device.reset()
    for closed in (stream, buffer, event):
        assert closed.is_closed
        closed.close()
    with pytest.raises(ClosedError, match="reset"):
        stream.synchronize()
    again = Stream(device)
    assert current_stream(device).query()
    again.synchronize()
    DeviceBuffer(64, device).close()
