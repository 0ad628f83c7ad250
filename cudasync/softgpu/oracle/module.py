"""Cellar. The oracle's side of `softgpu.launching`: compile a module, start its kernels.

Unlike the fast lowering, `Execution.run` holds the GIL between the turns of its threads.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.ptx.layout import layout
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.launching import Launch, Outcome, OutcomeKind
from cudasync.softgpu.oracle.block import Block
from cudasync.softgpu.oracle.lower import lower_kernel
from cudasync.softgpu.oracle.machine import MachineCode
from cudasync.softgpu.oracle.places import Places
from cudasync.softgpu.oracle.state import STACK_OFFSET, BlockState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.ptx import ir

_DEFAULT_MAX_THREADS = 1024
# The budget counts warp trips; here every thread of a warp counts its own.
_WARP = 32


class Execution:
    """A launch under way: blocks start in order, and those that wait are visited in turn."""

    def __init__(self, kernel: CompiledKernel, launch: Launch) -> None:
        self._kernel = kernel
        self._launch = launch
        self._live: list[Block] = []
        self._to_start = self._blocks()
        self._parameters = ctypes.create_string_buffer(launch.parameters, len(launch.parameters))
        symbols = launch.symbols
        self._symbols = (ctypes.c_uint64 * (len(symbols) + 1))(*symbols)

    def run(self) -> Outcome:
        for block in list(self._live):
            outcome = block.turn()
            if outcome.kind is OutcomeKind.FAULT:
                return outcome
            if outcome.kind is OutcomeKind.DONE:
                self._live.remove(block)
        for block in self._to_start:
            outcome = block.turn()
            if outcome.kind is OutcomeKind.FAULT:
                return outcome
            if outcome.kind is OutcomeKind.YIELDED:
                self._live.append(block)
        return Outcome(OutcomeKind.YIELDED if self._live else OutcomeKind.DONE)

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
            budget=min(launch.budget * _WARP, 2**62),
            dynamic_shared_bytes=launch.dynamic_shared_bytes,
        )
        record.block_size[:], record.grid_size[:] = launch.block, launch.grid
        record.block_index[:] = index
        shared_bytes = kernel.static_shared_bytes + launch.dynamic_shared_bytes
        frame_bytes = STACK_OFFSET + kernel.code.stack_bytes
        sizes = (frame_bytes, shared_bytes, kernel.local_bytes)
        return Block(kernel.name, kernel.machine().thread, kernel.code.stops, record, sizes)


class CompiledKernel:
    """One kernel, lowered; machine code is made at the first start."""

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
        offsets, self.parameter_size = layout(kernel.parameters)
        self.parameter_offsets = tuple(offsets[p.name] for p in kernel.parameters)
        self.parameter_sizes = tuple(p.size for p in kernel.parameters)
        self.static_shared_bytes = places.static_shared_bytes
        self.local_bytes = places.local_bytes
        self.max_threads = _max_threads(kernel)
        self._machine: MachineCode | None = None

    def machine(self) -> MachineCode:
        if self._machine is None:
            self._machine = MachineCode(self.code.text)
        return self._machine

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
    """A module whose every kernel has been lowered."""

    def __init__(self, module: ir.Module, *, memcheck: bool, record: bool) -> None:
        spaces = (StateSpace.GLOBAL, StateSpace.CONST)
        self.variables = tuple(v for v in module.variables if v.space in spaces)
        self.kernels = {
            kernel.name: CompiledKernel(
                module, kernel, self.variables, memcheck=memcheck, record=record
            )
            for kernel in module.kernels
        }


def compile_module(
    module: ir.Module, *, memcheck: bool = True, record: bool = False
) -> CompiledModule:
    """Lower every kernel of `module`; PtxError for what is not implemented."""
    return CompiledModule(module, memcheck=memcheck, record=record)
