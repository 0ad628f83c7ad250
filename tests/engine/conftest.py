"""Fixtures, and a summary of the explored interleavings at the end of the run."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest
from helpers.concurrency.bytecode_freezer import end_tracing
from helpers.driver.held_devices import device, latch

from cudasync.engine.host import pool as pools

__all__ = ["device", "latch"]


@pytest.fixture
def tracing_ends(request: pytest.FixtureRequest) -> None:
    """End tracing after a test that uses freezers or interrupts."""
    # No yield: see below.
    request.addfinalizer(_forget_what_was_handled)
    request.addfinalizer(end_tracing)  # noqa: PT021


def _forget_what_was_handled() -> None:
    """Leave no exception that counts as handled for ever, and as the context of all later ones.

    CPython leaves one, where a trace function raises at the end of a handler. (A signal cannot come
    there.) No generator must be under way: it has a place of its own for what it handles.
    """
    ctypes.pythonapi.PyErr_SetHandledException(None)
    assert sys.exc_info()[0] is None


@pytest.fixture
def replaced_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the suspended only thread of a pool soon: else each such point takes a second."""
    monkeypatch.setattr(pools, "ONLY_THREAD_S", 0.01)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = [
        line
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for word, line in getattr(report, "user_properties", [])
        if word == "explored"
    ]
    if lines:
        terminalreporter.section("interleavings explored")
        for line in lines:
            terminalreporter.write_line(line)
