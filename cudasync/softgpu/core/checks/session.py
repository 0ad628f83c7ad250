"""Cellar. A check from its beginning to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.checks.executor import CheckingExecutor
from cudasync.softgpu.core.checks.findings import KINDS, Findings
from cudasync.softgpu.core.checks.leaks import Leaks
from cudasync.softgpu.core.checks.memory import CheckedMemory
from cudasync.softgpu.core.checks.order import Order
from cudasync.softgpu.core.checks.watching import LaunchWatching
from cudasync.softgpu.core.driver_types.call_sites import call_site
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.graph import Graph
from cudasync.softgpu.core.scheduling.executor import Executor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.core.machine import Machine


class Check:
    """One check; meanwhile the machine's executor is a `CheckingExecutor`."""

    def __init__(
        self,
        machine: Machine,
        kinds: Iterable[str],
        *,
        most: int = 0,
        suppressions: Iterable[str] = (),
        tell: bool = False,
    ) -> None:
        asked = frozenset(kinds)
        wrong = sorted(asked - set(KINDS))
        if wrong or not asked:
            problem = (
                f"unknown check {', '.join(map(repr, wrong))}" if wrong else "no check is named"
            )
            raise DriverFailure(INVALID_VALUE, f"{problem}: choose from {', '.join(KINDS)}")
        executor = machine.executor
        if isinstance(executor, CheckingExecutor):
            raise DriverFailure(NOT_PERMITTED, "another check is running: end that one first")
        if type(executor) is not Executor:
            raise DriverFailure(
                NOT_SUPPORTED,
                "a check needs one command at a time: choose the scheduler fifo or seed=N",
            )
        self._machine = machine
        self.findings = Findings(suppressions, most, tell=tell)
        # Earlier work is not checked.
        self._drain()
        for context in machine.contexts:
            for stream in list(context.streams):
                stream.waits.clear()
        self._leaks = Leaks(machine) if "leak" in asked else None
        executor.__class__ = CheckingExecutor
        # A race between two nodes is reported by the lines that made them.
        Graph.noted_by = staticmethod(call_site)
        assert isinstance(executor, CheckingExecutor)
        self._executor = executor
        executor.kinds = asked
        executor.findings = self.findings
        executor.order = Order()
        executor.checked = CheckedMemory(machine, self.findings, asked)
        executor.watching = None
        if asked & {"race", "init", "sync"}:
            executor.watching = LaunchWatching(
                machine, self.findings, asked, executor.checked.unwritten
            )
        executor.waited = set()
        machine.memory.poisons_managed = "init" in asked

    def host(self, address: int, size_bytes: int, *, is_write: bool) -> None:
        """Note a read or write of memory by the calling thread."""
        with self._executor.lock:
            stamp = self._executor.order.host(call_site())
            end = address + size_bytes
            self._executor.checked.host(stamp, address, end, is_write=is_write)

    def finish(self) -> None:
        """Finish all pending work, and report leaks."""
        self._drain()
        if self._leaks is not None:
            for finding in self._leaks.findings():
                self.findings.add(finding)
            self._leaks.end()
            self._leaks = None

    def end(self) -> None:
        """Restore the executor."""
        self._executor.__class__ = Executor  # type: ignore[assignment]
        self._machine.memory.poisons_managed = False
        Graph.noted_by = None
        if self._leaks is not None:
            self._leaks.end()

    def _drain(self) -> None:
        for context in self._machine.contexts:
            if not context.error:
                self._machine.streams.synchronize_context(context)
