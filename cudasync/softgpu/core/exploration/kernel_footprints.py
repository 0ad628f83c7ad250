"""Cellar. Kernels of an explored program are recorded, so that it is known what they touch.

Each kernel has a twin that was compiled to be recorded, made when it is launched first; what it
touches is taken down by the byte, over all memory that it may touch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch, Plan
from cudasync.softgpu.core.modules.modules import Function
from cudasync.softgpu.core.streams.commands import Touched
from cudasync.softgpu.interface.access_recording import Recording, Touch

if TYPE_CHECKING:
    from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.interface.access_recording import Convergence
    from cudasync.softgpu.interface.initialisation_windows import Windows
    from cudasync.softgpu.interface.launch import AllocationSnapshot

# With more memory than this, kernels count as touching all of it: looking would take too long.
_MOST_BYTES: Final = 64 << 20


class Watch:
    """In the place of an expectation: expects nothing, and knows what was done."""

    recording: Recording
    has_accesses = True
    # Who looks at shared and local memory, if that is asked for.
    windows: Windows | None = None
    # Who is told which threads come to barriers, if that is asked for.
    convergence: Convergence | None = None

    def begin(self, allocations: AllocationSnapshot) -> Recording:
        self.recording = Recording(allocations.ranges() if self.has_accesses else ())
        self.recording.windows = self.windows
        self.recording.convergence = self.convergence
        return self.recording

    def failure(self, _function: Function) -> DriverFailure | None:
        return None

    def touched(self) -> Touched:
        record = self.recording
        indices = range(record.count)
        return Touched(
            [each for index in indices for each in record.touched(index, Touch.READ)],
            [each for index in indices for each in record.touched(index, Touch.WRITTEN)],
        )


class Watching:
    """Has launches recorded."""

    most_bytes = _MOST_BYTES

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._twins: dict[tuple[Function, tuple[bool, ...]], Function] = {}

    def watch(self, command: Command) -> None:
        """Before a command runs, its first time or again."""
        if not isinstance(command, KernelLaunch) or command.expectation is not None:
            return
        ranges = self._machine.memory.snapshot(command.stream.context).ranges()
        if sum(end - start for start, end in ranges) > self.most_bytes:
            return
        self._watch(command, ranges)

    def _watch(self, command: KernelLaunch, _ranges: list[tuple[int, int]]) -> None:
        twin = self._twin(command.function)
        if twin is not None:
            self._exchange(command, twin, Watch())

    def _exchange(self, command: KernelLaunch, twin: Function, watch: Watch) -> None:
        """Let a twin run in the place of the kernel."""
        plan = command.plan
        command.plan = Plan(self._machine, twin, plan.grid, plan.block, plan.dynamic_shared_bytes)
        command.expectation = watch

    def _twin(
        self,
        function: Function,
        *,
        record: bool = True,
        races: bool = False,
        convergence: bool = False,
    ) -> Function | None:
        key = function, (record, races, convergence)
        twin = self._twins.get(key)
        if twin is None:
            kernel = self._machine.modules.recordable(
                function, record=record, races=races, convergence=convergence
            )
            if kernel is None:
                return None
            twin = self._twins[key] = Function(function.module, kernel)
        return twin
