"""Cellar. Kernel launches: their checks when enqueued, and their execution.

Arguments are copied at the call. The kernel may touch the memory that is live when it starts. A
kernel that waits politely for memory to change yields, and goes on in a later turn.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.device_limits import (
    MAX_BLOCK,
    MAX_GRID,
    MAX_THREADS,
    MULTIPROCESSORS,
)
from cudasync.softgpu.core.driver_types.result_codes import (
    COOPERATIVE_LAUNCH_TOO_LARGE,
    INVALID_HANDLE,
    INVALID_PTX,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    DriverFailure,
)
from cudasync.softgpu.core.driver_types.virtual_clock import kernel_us
from cudasync.softgpu.core.launch.device_printf import drain
from cudasync.softgpu.core.launch.fault_report import failure_of
from cudasync.softgpu.core.launch.nested_launches import NestedLaunches
from cudasync.softgpu.core.streams.commands import NO_COMMANDS, Command, Step
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.launch.declared_accesses import Watcher
    from cudasync.softgpu.core.launch.launch_pool import DeviceLaunch, LaunchPool
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.modules.modules import Function
    from cudasync.softgpu.core.streams.commands import Touched
    from cudasync.softgpu.core.streams.streams import Stream
    from cudasync.softgpu.interface.launch import Dim3, Execution


class _Workspace(ctypes.Structure):
    """The memory with which a cooperative grid synchronises, provided by the driver."""

    _fields_ = (("size", ctypes.c_uint32), ("barrier", ctypes.c_uint32))


class Plan:
    """Shared by many launches of a function: their shape, checked against the bounds once."""

    __slots__ = ("block", "context", "dynamic_shared_bytes", "function", "grid", "machine", "shape")

    def __init__(
        self,
        machine: Machine,
        function: Function,
        grid: Dim3,
        block: Dim3,
        dynamic_shared_bytes: int,
    ) -> None:
        self.machine = machine
        self.function = function
        self.context = function.module.context
        self.grid = grid
        self.block = block
        self.dynamic_shared_bytes = dynamic_shared_bytes
        # In the form of the driver's call.
        self.shape = (*grid, *block, dynamic_shared_bytes)


class KernelLaunch(Command):
    """cuLaunchKernel."""

    __slots__ = (
        "below", "execution", "expectation", "parameters", "plan", "pool", "stop_reason",
        "workspace",
    )  # fmt: skip

    # For a launch by a graph node: the node's number, in the order of adding.
    graph_node: int | None = None

    def __init__(
        self,
        stream: Stream,
        plan: Plan,
        parameters: bytes,
        is_cooperative: bool = False,
    ) -> None:
        # Copied from `Command.__init__`, because a call of it takes a tenth of the driver's call.
        self.stream = stream
        self.serial = self.missing = 0
        self.before = None
        self.dependencies = self.dependents = NO_COMMANDS
        self.is_done = self.is_wanted = False
        self.after_us = self.time_us = 0.0
        self.plan = plan
        self.parameters = parameters
        # Receives the recording, if the launch's accesses are recorded.
        self.expectation: Watcher | None = None
        self.execution: Execution | None = None
        self.stop_reason = ""
        # The grid's barrier, as in the headers of cooperative groups: two words, of which the
        # second counts; %envreg1 and %envreg2 hold their address.
        self.workspace = _Workspace(ctypes.sizeof(_Workspace)) if is_cooperative else None
        # The launches by this grid's threads, if the module's kernels launch kernels.
        self.pool: LaunchPool | None = None
        self.below: NestedLaunches | None = None

    @property
    def function(self) -> Function:
        return self.plan.function

    def run(self) -> Step:
        below = self.below
        if below is None or not below.has_begun:
            step = self.run_grid()
            if step is not Step.DONE or self.pool is None:
                return step
            below = self.below
            assert below is not None, "a grid with a pool may have grids below it"
            below.begin()
        return below.run()

    def run_grid(self) -> Step:
        """Run the blocks of the grid, without the grids that they launch."""
        execution, expectation = self.execution or self.start(), self.expectation
        outcome = execution.run()
        if self.function.module.output is not None:
            drain(self.function.module.output, self.plan.machine.memory)
        if outcome.kind is OutcomeKind.YIELDED:
            return Step.MOVED if outcome.has_moved else Step.YIELDED
        self.execution = None
        if outcome.fault is not None:
            memory, source = self.plan.machine.memory, self.function.module.source
            raise failure_of(outcome.fault, memory, source, self.stop_reason, self.graph_node)
        if expectation is not None:
            failure = expectation.failure(self.function)
            if failure is not None:
                raise failure
        return Step.DONE

    def start(self) -> Execution:
        """Prepare the run, machine code included; without this call, the first `run` does so."""
        execution = self.execution = self._start()
        # Only now: `stop` first sets the reason, then looks for an execution.
        if self.stop_reason:
            execution.stop()
        return execution

    def _start(self) -> Execution:
        expectation, plan = self.expectation, self.plan
        allocations = plan.machine.memory.snapshot(self.stream.context)
        recording = expectation.begin(allocations) if expectation is not None else None
        symbols = plan.function.module.symbols
        launchable = plan.function.module.launchable
        if launchable is not None and self.function.name in launchable.launching:
            self.below = self.below or NestedLaunches(self, launchable)
            pool = self.pool = self.below.pool(plan.grid, plan.block)
            place = launchable.symbol
            symbols = (*symbols[:place], pool.address, *symbols[place + 1 :])
            allocations = AllocationSnapshot(
                [*allocations.ranges(), (pool.address, pool.address + pool.size)]
            )
        address = 0
        if self.workspace is not None:
            address = ctypes.addressof(self.workspace)
            size = ctypes.sizeof(self.workspace)
            allocations = AllocationSnapshot([*allocations.ranges(), (address, address + size)])
        launch = Launch(
            plan.grid,
            plan.block,
            plan.dynamic_shared_bytes,
            self.parameters,
            symbols,
            allocations,
            plan.machine.budget,
            recording,
            address,
        )
        try:
            return self.function.kernel.start(launch)
        except MemoryError:
            raise DriverFailure(
                OUT_OF_MEMORY, f"kernel {self.function.name}: no memory is left for its blocks"
            ) from None
        except Exception as problem:
            # The first launch makes the machine code.
            raise DriverFailure(
                INVALID_PTX, f"kernel {self.function.name} cannot be compiled: {problem}"
            ) from problem

    def grid_below(self, function: Function, launch: DeviceLaunch) -> KernelLaunch:
        """A grid that a thread of this launch has launched, to be run with `run_grid`."""
        plan = self.plan
        of_grid = Plan(plan.machine, function, launch.grid, launch.block, launch.shared_bytes)
        grid = KernelLaunch(
            self.stream, of_grid, launch.parameters[: function.kernel.parameter_size]
        )
        grid.below = self.below
        grid.stop_reason = self.stop_reason
        if self.expectation is not None:
            grid.expectation = self.expectation.of_grid_below(grid.parameters)
        return grid

    @property
    def own_cost_us(self) -> float:
        """The time of the grid, without the grids that it launches."""
        x, y, z = self.plan.grid
        block = self.plan.block
        return kernel_us(x * y * z * block[0] * block[1] * block[2])

    @property
    def cost_us(self) -> float:
        return self.own_cost_us + (self.below.cost_us if self.below is not None else 0.0)

    @property
    def launched_grids(self) -> bool:
        """Whether threads of the grid have launched grids, and its blocks are over."""
        return self.below is not None and self.below.has_launched

    def touched(self) -> Touched | None:
        if self.launched_grids:
            return None
        return self.expectation.touched() if self.expectation is not None else None

    def describe(self) -> str:
        return f"kernel {self.function.name}"

    def stop_grid(self, reason: str) -> None:
        """Stop the blocks of the grid, if they run."""
        self.stop_reason = self.stop_reason or reason
        execution = self.execution
        if execution is not None:
            execution.stop()

    def stop(self, reason: str) -> None:
        self.stop_grid(reason)
        if self.below is not None:
            self.below.stop(reason)

    def dropped(self) -> None:
        self.execution = self.below = self.pool = None


class NodeLaunch(KernelLaunch):
    """A launch by a graph node; a fault report names the node's number."""

    __slots__ = ("graph_node",)


def launch(
    machine: Machine,
    function: Function,
    stream: Stream,
    grid: Dim3,
    block: Dim3,
    dynamic_shared_bytes: int,
    parameters: bytes,
    *,
    is_cooperative: bool = False,
) -> None:
    """Check and enqueue a launch; DriverFailure INVALID_VALUE names the violated bound.

    The blocks of a cooperative launch must fit on the device together, otherwise
    COOPERATIVE_LAUNCH_TOO_LARGE.
    """
    if function.module.context is not stream.context:
        raise DriverFailure(
            INVALID_HANDLE, "the kernel and the stream belong to different contexts"
        )
    plan = function.plan
    if plan is None or plan.shape != (*grid, *block, dynamic_shared_bytes):
        check_shape(function, grid, block, dynamic_shared_bytes)
        plan = Plan(machine, function, grid, block, dynamic_shared_bytes)
        # If each launch is recorded, every launch must go through this function.
        function.plan = None if machine.record else plan
    if is_cooperative:
        _check_cooperative(function, stream, grid, block, dynamic_shared_bytes)
    machine.executor.enqueue(KernelLaunch(stream, plan, parameters, is_cooperative))


def _check_cooperative(
    function: Function, stream: Stream, grid: Dim3, block: Dim3, shared_bytes: int
) -> None:
    green = stream.green
    multiprocessors = MULTIPROCESSORS if green is None else green.multiprocessors.count
    most = multiprocessors * resident_blocks(function, prod(block), shared_bytes)
    if prod(grid) > most:
        raise DriverFailure(
            COOPERATIVE_LAUNCH_TOO_LARGE,
            f"kernel {function.name}: {prod(grid)} blocks, at most {most} fit on the device",
        )


def check_shape(function: Function, grid: Dim3, block: Dim3, dynamic_shared_bytes: int) -> None:
    threads = block[0] * block[1] * block[2]
    if (
        0 in (*grid, *block)
        or threads > min(MAX_THREADS, function.kernel.max_threads)
        or any(size > most for size, most in zip(grid + block, MAX_GRID + MAX_BLOCK, strict=True))
        or dynamic_shared_bytes > function.dynamic_shared_limit
    ):
        raise DriverFailure(
            INVALID_VALUE, _complaint(function, grid, block, threads, dynamic_shared_bytes)
        )


def _complaint(function: Function, grid: Dim3, block: Dim3, threads: int, shared: int) -> str:
    name = f"kernel {function.name}"
    if 0 in (*grid, *block):
        return f"{name}: grid {grid} and block {block} must not contain 0"
    most = min(MAX_THREADS, function.kernel.max_threads)
    if threads > most:
        return f"{name}: {threads} threads in a block, at most {most}"
    if shared > function.dynamic_shared_limit:
        return (
            f"{name}: {shared} bytes of dynamic shared memory, at most "
            f"{function.dynamic_shared_limit} unless MAX_DYNAMIC_SHARED_SIZE_BYTES allows more"
        )
    return f"{name}: grid {grid} or block {block} is larger than {MAX_GRID} or {MAX_BLOCK}"


def resident_blocks(function: Function, threads: int, dynamic_shared_bytes: int) -> int:
    """How many blocks of this shape a multiprocessor holds at once; 0 if none fits."""
    if not 0 < threads <= function.kernel.max_threads:
        return 0
    has = function.module.context.device.capability
    shared = function.kernel.static_shared_bytes + dynamic_shared_bytes + has.reserved_shared_bytes
    blocks = min(
        has.threads_per_multiprocessor // (-(-threads // 32) * 32), has.blocks_per_multiprocessor
    )
    return min(blocks, has.shared_bytes_per_multiprocessor // shared) if shared else blocks


def best_block(function: Function, limit: int, shared_of: Callable[[int], int]) -> tuple[int, int]:
    """The block size with the most resident threads, and the grid that fills the device.

    `shared_of` maps a number of threads to the block's dynamic shared memory. Of equally good
    sizes, the largest is returned; 0 and 0 if no block can be launched.
    """
    most = min(function.kernel.max_threads, limit if limit > 0 else MAX_THREADS)
    sizes = [*range(most - most % 32, 0, -32), most] if most % 32 else range(most, 0, -32)
    best, found = 0, (0, 0)
    for threads in sizes:
        shared_bytes = shared_of(threads)
        if shared_bytes > function.dynamic_shared_limit:
            continue
        blocks = resident_blocks(function, threads, shared_bytes)
        if blocks * threads > best:
            best, found = blocks * threads, (threads, MULTIPROCESSORS * blocks)
    return found


def spare_shared(function: Function, blocks: int, threads: int) -> int:
    """The dynamic shared memory left for each of `blocks` resident blocks of a multiprocessor."""
    if blocks < 1 or not 0 < threads <= function.kernel.max_threads:
        raise DriverFailure(
            INVALID_VALUE, f"{function.name} cannot have {blocks} blocks of {threads} threads"
        )
    if resident_blocks(function, threads, 0) < blocks:
        return 0
    has = function.module.context.device.capability
    share = has.shared_bytes_per_multiprocessor // blocks - has.reserved_shared_bytes
    share -= function.kernel.static_shared_bytes
    return max(0, min(share, function.dynamic_shared_limit))
