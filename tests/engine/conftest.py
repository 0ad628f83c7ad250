"""Fixtures, and a summary of the explored interleavings at the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers.concurrency.bytecode_freezer import end_tracing
from helpers.driver.held_devices import device, latch

from cudasync.engine.host import pool as pools

__all__ = ["device", "latch"]


@pytest.fixture
def tracing_ends() -> Iterator[None]:
    """End tracing after a test that uses freezers."""
    yield
    end_tracing()


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
