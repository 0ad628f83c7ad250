"""Cellar. The oracle's side of `softgpu.interface.launch`: compiles a module, starts its kernels.

Unlike the fast lowering, `Execution.run` holds the GIL between the turns of its threads.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.ptx.layout import layout
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.expansion import expand
from cudasync.softgpu.interface.launch import Fault, FaultKind, Launch, Outcome, OutcomeKind
from cudasync.softgpu.oracle.emission.memory_layout import Places
from cudasync.softgpu.oracle.emission.state_records import STACK_OFFSET, BlockState
from cudasync.softgpu.oracle.interpreter.block_scheduler import Block
from cudasync.softgpu.oracle.interpreter.codegen import MachineCode
from cudasync.softgpu.oracle.pipeline import lower_kernel
from cudasync.softgpu.semantics.unsupported_instructions import lower_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.ptx import ir
    from cudasync.softgpu.interface.launch import Dim3

_DEFAULT_MAX_THREADS = 1024
# The budget counts instructions of warps, but here each thread counts its own. The factor allows
# for warps of which only some threads loop for ever, in slower code.
_WARP = 8
# The cost in budget of a turn in which no thread makes progress.
IDLE_COST = 2**14


class Execution:
    """A launch in execution: blocks start in order, and waiting blocks get turns in rotation."""

    def __init__(self, kernel: CompiledKernel, launch: Launch) -> None:
        self._kernel = kernel
        self._launch = launch
        self._live: list[Block] = []
        self._budget = min(launch.budget * _WARP, 2**62)
        self._spent = 0
        self._is_stopped = False
        # The cost of a block that executes every instruction once. Thread set-up dominates it.
        x, y, z = launch.block
        self._own_cost = x * y * z * (kernel.instructions + 2**13)
        self._to_start = self._blocks()
        self._parameters = ctypes.create_string_buffer(launch.parameters, len(launch.parameters))
        symbols = launch.symbols
        self._symbols = (ctypes.c_uint64 * (len(symbols) + 1))(*symbols)

    def stop(self) -> None:
        """Make the launch end: see `launch.Execution`."""
        self._is_stopped = True
        for block in list(self._live):
            block.charge(self._budget)

    def run(self) -> Outcome:
        has_moved = False
        if self._is_stopped:
            return self._over(FaultKind.STOPPED)
        for block in list(self._live):
            outcome = block.turn()
            if outcome.kind is OutcomeKind.FAULT:
                return outcome
            has_moved = has_moved or outcome.has_moved
            if outcome.kind is OutcomeKind.DONE:
                self._live.remove(block)
                self._spent += self._budget - block.budget_left
                has_moved = True
        for block in self._to_start:
            has_moved = True
            if self._spent > self._launch.total_budget * _WARP:
                # All blocks together have spent the launch's budget.
                return self._over(FaultKind.TIMEOUT)
            outcome = block.turn()
            if outcome.kind is OutcomeKind.FAULT:
                return outcome
            if outcome.kind is OutcomeKind.YIELDED:
                self._live.append(block)
            else:
                self._spent += self._budget - block.budget_left + self._own_cost
        if not self._live:
            return Outcome(OutcomeKind.DONE)
        if not has_moved:
            for block in self._live:
                block.charge(IDLE_COST * _WARP)
        return Outcome(OutcomeKind.YIELDED, has_moved=has_moved)

    def _over(self, kind: FaultKind) -> Outcome:
        kernel = self._kernel
        fault = Fault(kind, kernel.name, kernel.line, (0, 0, 0), ())
        return Outcome(OutcomeKind.FAULT, fault)

    def _blocks(self) -> Iterator[Block]:
        x, y, z = self._launch.grid
        for number in range(x * y * z):
            yield self._block((number % x, number // x % y, number // (x * y)))

    def _block(self, index: tuple[int, int, int]) -> Block:
        launch, kernel = self._launch, self._kernel
        record = BlockState(
            parameters=ctypes.addressof(self._parameters),
            parameter_bytes=len(launch.parameters),
            symbols=ctypes.addressof(self._symbols),
            allocations=launch.allocations.address,
            allocation_count=launch.allocations.count,
            recording=launch.recording.address if launch.recording else 0,
            recording_count=launch.recording.count if launch.recording else 0,
            budget=self._budget,
            workspace=launch.workspace,
            dynamic_shared_bytes=launch.dynamic_shared_bytes,
        )
        record.block_size[:], record.grid_size[:] = launch.block, launch.grid
        record.block_index[:] = index
        shared_bytes = kernel.reserved_shared_bytes + kernel.static_shared_bytes
        shared_bytes += launch.dynamic_shared_bytes
        frame_bytes = STACK_OFFSET + kernel.code.stack_bytes
        sizes = (frame_bytes, shared_bytes, kernel.local_bytes)
        return Block(kernel.name, kernel.machine().thread, kernel.code.stops, record, sizes)


class CompiledKernel:
    """One lowered kernel; its machine code is made at the first start."""

    def __init__(
        self,
        module: ir.Module,
        kernel: ir.Function,
        variables: tuple[ir.Variable, ...],
        *,
        memcheck: bool,
        record: bool,
    ) -> None:
        places = Places(module, kernel, variables)
        self.code = lower_kernel(kernel, places, module.file, memcheck=memcheck, record=record)
        self.name = kernel.name
        self.line = kernel.span.line
        self.instructions = len(kernel.body)
        offsets, self.parameter_size = layout(kernel.parameters)
        self.parameter_offsets = tuple(offsets[p.name] for p in kernel.parameters)
        self.parameter_sizes = tuple(p.size for p in kernel.parameters)
        self.static_shared_bytes = places.static_shared_bytes
        self.reserved_shared_bytes = places.reserved_shared_bytes
        self.local_bytes = places.local_bytes
        self.max_threads = _max_threads(kernel)
        self.unit = 1
        self.sites: tuple[ir.Instruction, ...] = ()
        self.parts: tuple[ir.Function, ...] = ()
        self._machine: MachineCode | None = None

    def machine(self) -> MachineCode:
        if self._machine is None:
            self._machine = MachineCode(self.code.text)
        return self._machine

    sees_threads = False

    def shares(self, _block: Dim3) -> bool:
        """Whether the kernel may race: unknown here."""
        return False

    def has_windows(self, _block: Dim3) -> bool:
        """Whether the block's own memory is watched: never."""
        return False

    def parts_ways(self, _block: Dim3) -> bool:
        """Whether threads may miss barriers: unknown here."""
        return False

    def start(self, launch: Launch) -> Execution:
        assert len(launch.parameters) >= self.parameter_size, "the parameter block is too short"
        return Execution(self, launch)


def _max_threads(kernel: ir.Function) -> int:
    for name in ("reqntid", "maxntid"):
        if name in kernel.directives:
            count = 1
            for size in kernel.directives[name]:
                count *= size
            return count
    return _DEFAULT_MAX_THREADS


class CompiledModule:
    """A module with every kernel lowered, except those that cannot be."""

    def __init__(
        self, module: ir.Module, *, memcheck: bool, record: bool, only: str | None
    ) -> None:
        spaces = (StateSpace.GLOBAL, StateSpace.CONST)
        self.variables = tuple(v for v in module.variables if v.space in spaces)
        self.kernels, self.refused = lower_each(
            module,
            lambda kernel: CompiledKernel(
                module, kernel, self.variables, memcheck=memcheck, record=record
            ),
            only,
        )


def compile_module(
    module: ir.Module,
    *,
    memcheck: bool = True,
    record: bool = False,
    races: bool = False,  # Unused: its threads are not compared.
    convergence: bool = False,  # Unused: arrivals at barriers are not compared.
    reads: bool = True,  # Unused: plain loads are always recorded.
    windows: bool = False,  # Unused: the block's own memory is not watched.
    units: bool = False,  # Unused: marks are by the byte.
    image: bytes | None = None,
    only: str | None = None,
) -> CompiledModule:
    """Lower every kernel that can be lowered; PtxError for invalid PTX. Caches nothing."""
    return CompiledModule(expand(module), memcheck=memcheck, record=record, only=only)
