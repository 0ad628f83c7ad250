"""Cellar. Kernel launches: what is checked when one is enqueued, and how it is run.

Arguments are copied at the call. The memory that the kernel may touch is that of the moment when
it starts. A kernel that waits politely for memory to change yields, and goes on in a later turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.clock import kernel_us
from cudasync.softgpu.core.commands import Command, Step
from cudasync.softgpu.core.faults import failure_of
from cudasync.softgpu.core.limits import (
    MAX_BLOCK,
    MAX_GRID,
    MAX_SHARED_BYTES_OPTIN,
    MAX_THREADS,
    MULTIPROCESSORS,
)
from cudasync.softgpu.core.results import INVALID_HANDLE, INVALID_VALUE, DriverFailure
from cudasync.softgpu.launching import Launch, OutcomeKind

if TYPE_CHECKING:
    from cudasync.softgpu.core.expectations import Expectation
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.modules import Function
    from cudasync.softgpu.core.streams import Stream
    from cudasync.softgpu.launching import Dim3, Execution

_THREADS_PER_MULTIPROCESSOR = 2048
_BLOCKS_PER_MULTIPROCESSOR = 32


class KernelLaunch(Command):
    """cuLaunchKernel."""

    __slots__ = (
        "block",
        "dynamic_shared_bytes",
        "execution",
        "expectation",
        "function",
        "grid",
        "machine",
        "parameters",
    )

    def __init__(
        self,
        stream: Stream,
        machine: Machine,
        function: Function,
        grid: Dim3,
        block: Dim3,
        dynamic_shared_bytes: int,
        parameters: bytes,
        expectation: Expectation | None = None,
    ) -> None:
        super().__init__(stream)
        self.machine = machine
        self.function = function
        self.grid = grid
        self.block = block
        self.dynamic_shared_bytes = dynamic_shared_bytes
        self.parameters = parameters
        # What it may access, if that is to be checked.
        self.expectation = expectation
        self.execution: Execution | None = None

    def run(self) -> Step:
        execution, expectation = self.execution, self.expectation
        if execution is None:
            execution = self.execution = self.function.kernel.start(
                Launch(
                    self.grid,
                    self.block,
                    self.dynamic_shared_bytes,
                    self.parameters,
                    self.function.module.symbols,
                    self.machine.memory.snapshot(self.stream.context),
                    self.machine.budget,
                    expectation.recording if expectation is not None else None,
                )
            )
        outcome = execution.run()
        if outcome.kind is OutcomeKind.YIELDED:
            return Step.YIELDED
        self.execution = None
        if outcome.fault is not None:
            raise failure_of(outcome.fault, self.machine.memory)
        if expectation is not None:
            failure = expectation.failure(self.function)
            if failure is not None:
                raise failure
        return Step.DONE

    @property
    def cost_us(self) -> float:
        x, y, z = self.grid
        return kernel_us(x * y * z * self.block[0] * self.block[1] * self.block[2])

    def describe(self) -> str:
        return f"kernel {self.function.name}"

    def dropped(self) -> None:
        self.execution = None


def launch(
    machine: Machine,
    function: Function,
    stream: Stream,
    grid: Dim3,
    block: Dim3,
    dynamic_shared_bytes: int,
    parameters: bytes,
    expectation: Expectation | None = None,
) -> None:
    """Check and enqueue; DriverFailure INVALID_VALUE names the bound that is broken."""
    if function.module.context is not stream.context:
        raise DriverFailure(INVALID_HANDLE, "the kernel and the stream differ in context")
    shape = (grid, block, dynamic_shared_bytes)
    if shape != function.checked_shape:
        _check_shape(function, grid, block, dynamic_shared_bytes)
        function.checked_shape = shape
    machine.executor.enqueue(
        KernelLaunch(
            stream, machine, function, grid, block, dynamic_shared_bytes, parameters, expectation
        )
    )


def _check_shape(function: Function, grid: Dim3, block: Dim3, dynamic_shared_bytes: int) -> None:
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
        return f"{name}: grid {grid} and block {block} may have no zero"
    most = min(MAX_THREADS, function.kernel.max_threads)
    if threads > most:
        return f"{name}: {threads} threads in a block, at most {most}"
    if shared > function.dynamic_shared_limit:
        return (
            f"{name}: {shared} bytes of dynamic shared memory, at most "
            f"{function.dynamic_shared_limit} unless more is opted for"
        )
    return f"{name}: grid {grid} or block {block} is larger than {MAX_GRID} or {MAX_BLOCK}"


def resident_blocks(function: Function, threads: int, dynamic_shared_bytes: int) -> int:
    """How many blocks of this shape a multiprocessor holds at once; 0 if not even one."""
    if not 0 < threads <= function.kernel.max_threads:
        return 0
    shared = function.kernel.static_shared_bytes + dynamic_shared_bytes + 1024
    return min(
        _THREADS_PER_MULTIPROCESSOR // (-(-threads // 32) * 32),
        _BLOCKS_PER_MULTIPROCESSOR,
        (MAX_SHARED_BYTES_OPTIN + 1024) // shared,
    )


def best_block(function: Function, limit: int) -> tuple[int, int]:
    """Block size with the most resident threads, and the grid that fills the device."""
    threads = min(function.kernel.max_threads, limit or MAX_THREADS)
    return threads, MULTIPROCESSORS * max(1, resident_blocks(function, threads, 0))
