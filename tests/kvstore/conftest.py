"""Fixtures for the tests of key-value stores."""

from __future__ import annotations

import pytest
from helpers.distributed.reference_nccl import ReferenceNccl
from helpers.driver.reset_devices import begin_anew

from cudasync.distributed import initialisation, nccl_library


@pytest.fixture(scope="session", autouse=True)
def devices_begin_anew():
    begin_anew()


@pytest.fixture
def nccl(monkeypatch):
    """A reference of NCCL's calls for two devices, which `create("nccl")` uses."""
    for launcher in initialisation._LAUNCHERS:
        monkeypatch.delenv(launcher, raising=False)
    reference = ReferenceNccl(2)
    monkeypatch.setattr(nccl_library, "library", lambda: reference)
    return reference
