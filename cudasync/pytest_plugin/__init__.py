"""The tower. The pytest plugin: options for tests marked `gpu`, and fixtures for any test.

pytest loads this in every project where cudasync is installed. So nothing here imports NumPy or
CUDA, prints, or hooks into each test. The modules that do so are loaded at the first use of an
option or a fixture.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from cudasync.pytest_plugin.options import SEVERAL, add_options, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.driver import Device
    from cudasync.testing import Latch

MARKER = (
    "gpu: uses CUDA; --gpu-device, --gpu-schedules, --gpu-explore and --gpu-check choose how it "
    "runs (without them: once, as any other test)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    settings = settings_of(config)
    if settings is not None:
        running = import_module("cudasync.pytest_plugin.running")
        config.pluginmanager.register(running.Running(config, settings), "cudasync-running")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    # The first test that uses CUDA fixes the number of devices for all tests.
    if any("gpus" in getattr(item, "fixturenames", ()) for item in items):
        os.environ.setdefault("CUDASYNC_SOFTGPU_DEVICES", SEVERAL)


@pytest.fixture
def gpu() -> Device:
    """The first device, real or software; the test is skipped where there is none."""
    device: Device = import_module("cudasync.pytest_plugin.devices").find(1)[0]
    return device


@pytest.fixture
def gpus() -> Callable[[int], list[Device]]:
    """`gpus(n)`: the first n devices; the test is skipped where there are fewer."""
    find: Callable[[int], list[Device]] = import_module("cudasync.pytest_plugin.devices").find
    return find


@pytest.fixture
def latch(gpu: Device) -> Iterator[Latch]:
    """A `cudasync.testing.Latch` of the first device, released at the end of the test."""
    with import_module("cudasync.testing").Latch(gpu) as held:
        yield held
