"""Cellar. Dynamic parallelism: the grids that the threads of a grid launch.

A grid's launches run when its blocks are over, which CUDA permits: since CUDA 12 no thread can wait
for a grid that it launched. A grid is over when all grids below it are, so a launch runs with all
grids below it before the next launch of its block. Launches to cudaStreamTailLaunch come last.
This serial order is legal for any streams and events of device code.

All of them run inside the command of the host's launch, so nothing that comes after that launch
can come between them.
"""

from __future__ import annotations

from collections import deque
from math import prod
from typing import TYPE_CHECKING

from cudasync.softgpu.core.launch.launch_pool import LaunchPool
from cudasync.softgpu.core.modules.module_manager import refusal
from cudasync.softgpu.core.modules.modules import RefusedFunction
from cudasync.softgpu.core.streams.commands import Step
from cudasync.softgpu.interface.pending_launches import LIMIT_COUNT, PENDING_LIMIT, TAIL_LAUNCH

if TYPE_CHECKING:
    from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
    from cudasync.softgpu.core.launch.launch_pool import DeviceLaunch
    from cudasync.softgpu.core.modules.launchable import Launchable
    from cudasync.softgpu.interface.launch import Dim3


class NestedLaunches:
    """The grids below a launch of the host."""

    def __init__(self, host_launch: KernelLaunch, launchable: Launchable) -> None:
        self._host_launch = host_launch
        self._machine = host_launch.plan.machine
        self._context = host_launch.plan.context
        self._launchable = launchable
        # For each unfinished grid its launches that have not begun.
        self._grids: list[deque[DeviceLaunch]] = []
        # The grid that runs, or has yielded.
        self._running: KernelLaunch | None = None
        self.has_begun = False
        """Whether the blocks of the host's grid are over."""
        self.has_launched = False
        """Whether its threads launched a grid."""
        self.cost_us = 0.0
        """The time of the finished grids."""

    def pool(self, grid: Dim3, block: Dim3) -> LaunchPool:
        """Room for the launches of a grid that begins now."""
        machine, context = self._machine, self._context
        pending = sum(map(len, self._grids))
        return LaunchPool(
            self._launchable.rows(),
            most=max(0, machine.limit(context, PENDING_LIMIT) - pending),
            depth=len(self._grids),
            parameter_bytes=self._launchable.parameter_bytes,
            threads=prod(grid) * prod(block),
            ordinal=context.device.ordinal,
            limits=[machine.limit(context, which) for which in range(LIMIT_COUNT)],
        )

    def begin(self) -> None:
        """The blocks of the host's grid are over."""
        self._take(self._host_launch)
        self.has_launched = bool(self._grids[-1])
        self.has_begun = True
        if self.has_launched:
            self._machine.executor.ends_grid(self._host_launch)

    def run(self) -> Step:
        """Run the grids below; DriverFailure for a fault of one, with its kernel's name."""
        while True:
            grid = self._running or self._next()
            if grid is None:
                return Step.DONE
            step = grid.run_grid()
            if step is not Step.DONE:
                return step
            self._running = None
            self.cost_us += grid.own_cost_us
            self._take(grid)
            self._machine.executor.ends_grid(grid)

    def stop(self, reason: str) -> None:
        """Stop the running grid; callable from any thread."""
        running = self._running
        if running is not None:
            running.stop_grid(reason)

    def _take(self, grid: KernelLaunch) -> None:
        """The blocks of a grid are over: its launches are next, tail launches after the others."""
        launches = grid.pool.launches() if grid.pool is not None else []
        grid.pool = None
        tails = [each for each in launches if each.stream == TAIL_LAUNCH]
        others = [each for each in launches if each.stream != TAIL_LAUNCH]
        self._grids.append(deque((*others, *tails)))

    def _next(self) -> KernelLaunch | None:
        """Make the next grid ready to run; None if all are over."""
        while self._grids and not self._grids[-1]:
            self._grids.pop()
        if not self._grids:
            return None
        launch = self._grids[-1].popleft()
        function = self._launchable.kernel(launch.function)
        if isinstance(function, RefusedFunction):
            raise refusal(function.problem)
        grid = self._running = self._host_launch.grid_below(function, launch)
        self._machine.executor.begins_grid(grid)
        return grid
