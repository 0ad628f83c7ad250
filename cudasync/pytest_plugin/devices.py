"""The tower. The devices for tests, found when the first test needs them."""

from __future__ import annotations

import os

import pytest

from cudasync.driver import Device, device_count
from cudasync.driver.probe import ensure_driver, place_software_gpu
from cudasync.errors import CudaError, CudasyncError
from cudasync.pytest_plugin.options import SEVERAL


def place(wish: str) -> str:
    """Choose the driver before any test is imported; returns why there is none, or "".

    UsageError if the software GPU is requested and not available.
    """
    if wish:
        os.environ["CUDASYNC_DEVICE"] = wish
    os.environ.setdefault("CUDASYNC_SOFTGPU_DEVICES", SEVERAL)
    try:
        if wish == "soft":
            place_software_gpu()
        else:
            ensure_driver()
    except CudasyncError as error:
        if wish == "soft":
            raise pytest.UsageError(f"--gpu-device=soft: {error}") from error
        return str(error)
    return ""


def find(count: int) -> list[Device]:
    """The first `count` devices; the test is skipped where there are fewer."""
    try:
        there = device_count()
    except CudasyncError as error:
        pytest.skip(str(error))
    if count > there:
        pytest.skip(f"needs {count} devices, found {there}: set CUDASYNC_SOFTGPU_DEVICES={count}")
    return [Device(ordinal) for ordinal in range(count)]


def tidy() -> None:
    """Wait for all work; reset a device that a test has lost, for later tests."""
    for ordinal in range(device_count()):
        device = Device(ordinal)
        try:
            device.synchronize()
        except CudaError:
            device.reset()
