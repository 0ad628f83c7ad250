"""Cellar. Records the kernels of an explored program to learn their footprints.

Each kernel has a twin that is compiled to be recorded, made at the first launch. The recording is
by the byte, over all memory that the kernel may touch.
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

# With more allocated memory than this, a kernel counts as touching everything: reading the marks
# would take too long.
_MOST_BYTES: Final = 64 << 20


class Watch:
    """Records a launch in place of an `Expectation`, without expecting anything."""

    recording: Recording
    # The unit of the kernel's accesses: see `CompiledKernel.unit`.
    unit = 1
    # Whether blocks may run at once: see `Recording.is_order_free`.
    is_order_free = False
    # The memory to watch; by default all.
    ranges: list[tuple[int, int]] | None = None
    # Tracks written bytes of shared and local memory, if requested.
    windows: Windows | None = None
    # Learns which threads come to barriers, if requested.
    convergence: Convergence | None = None

    def begin(self, allocations: AllocationSnapshot) -> Recording:
        ranges = allocations.ranges() if self.ranges is None else self.ranges
        self.recording = Recording(ranges, unit=self.unit)
        self.recording.is_order_free = self.is_order_free
        self.recording.windows = self.windows
        self.recording.convergence = self.convergence
        return self.recording

    def failure(self, _function: Function) -> DriverFailure | None:
        return None

    def of_grid_below(self, _parameters: bytes) -> None:
        """A check chooses the twin when the grid begins; an exploration does without."""

    def touched(self) -> Touched:
        record = self.recording
        indices = range(record.count)
        return Touched(
            [each for index in indices for each in record.touched(index, Touch.READ)],
            [each for index in indices for each in record.touched(index, Touch.WRITTEN)],
        )


class Watching:
    """Lets launches run as recorded twins."""

    most_bytes = _MOST_BYTES

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._twins: dict[tuple[Function, tuple[bool, ...]], Function] = {}

    def watch(self, command: Command) -> bool:
        """Called before each run of a command; returns whether it is watched, if it has to be."""
        if not isinstance(command, KernelLaunch) or command.expectation is not None:
            return True
        return self._watch(command, self._machine.memory.snapshot(command.stream.context).ranges())

    def _watch(self, command: KernelLaunch, ranges: list[tuple[int, int]]) -> bool:
        twin = None if self._are_too_large(ranges) else self._twin(command.function)
        if twin is None:
            return False
        self._exchange(command, twin, Watch())
        return True

    def _are_too_large(self, ranges: list[tuple[int, int]]) -> bool:
        return sum(end - start for start, end in ranges) > self.most_bytes

    def _exchange(self, command: KernelLaunch, twin: Function, watch: Watch) -> None:
        """Let a twin run in place of the kernel."""
        plan = command.plan
        command.plan = Plan(self._machine, twin, plan.grid, plan.block, plan.dynamic_shared_bytes)
        command.expectation = watch
        watch.unit = twin.kernel.unit

    def _twin(
        self,
        function: Function,
        *,
        record: bool = True,
        races: bool = False,
        convergence: bool = False,
        reads: bool = True,
        windows: bool = False,
    ) -> Function | None:
        key = function, (record, races, convergence, reads, windows)
        twin = self._twins.get(key)
        if twin is None:
            kernel = self._machine.modules.recordable(
                function,
                record=record,
                races=races,
                convergence=convergence,
                reads=reads,
                windows=windows,
            )
            if kernel is None:
                return None
            twin = self._twins[key] = Function(function.module, kernel)
        return twin
