"""Cellar. Findings about races in a kernel: both threads, their lines, the bytes, the remedy."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from cudasync.softgpu.core.checks.checked_watch import CheckedWatch
from cudasync.softgpu.core.checks.findings import Access, Finding
from cudasync.softgpu.core.checks.kernel_meetings import place
from cudasync.softgpu.core.checks.thread_races import ThreadRaces
from cudasync.softgpu.core.modules.source_lines import source_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.checks.findings import Findings
    from cudasync.softgpu.core.checks.thread_races import Side, ThreadRace
    from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
    from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
    from cudasync.softgpu.core.modules.modules import Function
    from cudasync.softgpu.interface.access_recording import Recording
    from cudasync.softgpu.interface.launch import AllocationSnapshot

_HAZARDS = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}


class ThreadWatch(CheckedWatch):
    """Records a launch, and finds races between its threads."""

    def __init__(
        self, command: KernelLaunch, findings: Findings, watched: Sequence[tuple[int, int]]
    ) -> None:
        """`watched` are the ranges of global memory on which the threads may race."""
        super().__init__()
        self._command = command
        self._findings = findings
        self._watched = watched

        self._races: ThreadRaces | None = None

    def begin(self, allocations: AllocationSnapshot) -> Recording:
        recording = super().begin(allocations)
        sites = self._command.function.kernel.sites
        threads = prod(self._command.plan.block)
        self._races = ThreadRaces(self._watched, sites, threads, self._tell)
        recording.races = self._races
        return recording

    def failure(self, function: Function) -> DriverFailure | None:
        if self._races is not None and self._races.raised is not None:
            raise self._races.raised
        if self._races is not None and self._races.gave_up:
            self._findings.pass_over(
                f"race between blocks of {self._command.describe()}, for the rest of the launch: "
                "it has more atomics and fences than the check can track"
            )
        return super().failure(function)

    def _tell(self, race: ThreadRace) -> None:
        sides = [self._access(each) for each in (race.first, race.second)]
        hazard = _HAZARDS[race.first.is_write, race.second.is_write]
        name = self._command.function.name
        where = "shared" if race.offset is not None else "global"
        what = (
            f"a cp.async copy and {_thread(sides[1])}"
            if race.is_copy
            else f"{_thread(sides[0])} and {_thread(sides[1])}"
        )
        text = f"{hazard} hazard in {where} memory of kernel {name}: nothing orders {what}"
        self._findings.add(Finding("race", text, sides, self._memory(race), _missing(race)))

    def _access(self, side: Side) -> Access:
        plan, function = self._command.plan, self._command.function
        block = place(side.block, plan.grid)
        thread = f"thread {place(side.thread, plan.block)} of block {block}"
        line = function.kernel.sites[side.site - 1].span.line if side.site else 0
        return Access(
            self._command.describe(),
            "write" if side.is_write else "read",
            self._command.stamp.site,
            self._command.stream.name,
            line,
            source_of(function.module.source, line) if line else "",
            thread=thread,
            launch=self._command.stamp.launch,
        )

    def _memory(self, race: ThreadRace) -> str:
        if race.offset is not None:
            last = race.offset + race.size_bytes - 1
            return f"bytes {race.offset} to {last} of the block's shared memory"
        allocation = self._command.plan.machine.memory.find(race.address)
        if allocation is None:
            return f"{race.size_bytes} bytes at {race.address:#x}"
        offset = race.address - allocation.start
        return f"bytes {offset} to {offset + race.size_bytes - 1} of {allocation.describe()}"


def _thread(access: Access) -> str:
    return f"the {access.verb} by {access.thread}"


def _missing(race: ThreadRace) -> str:
    if race.is_copy:
        return (
            "missing: cp.async.wait_group or wait_all (__pipeline_wait_prior) by the copying "
            "thread, before the barrier that precedes the use"
        )
    if race.is_one_warp:
        return (
            "missing: __syncwarp() between the two, or __syncthreads() if other warps take part: "
            "lanes of a warp need not run in lockstep"
        )
    if race.first.block == race.second.block:
        return "missing: __syncthreads() between the two, or atomics for both"
    return (
        "missing: atomics for both; or a flag, written after __threadfence() and read before one; "
        "or a grid-wide barrier (a cooperative launch); or two launches"
    )
