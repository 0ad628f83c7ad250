"""Running a kernel on a lowering alone, with NumPy arrays as device memory: no driver, no core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.ptx import ir
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, Outcome, OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.interface.access_recording import Recording
    from cudasync.softgpu.interface.launch import CompiledKernel, CompiledModule, Dim3, Execution


def dim3(size: Sequence[int]) -> Dim3:
    x, y, z = (*size, 1, 1)[:3]
    return x, y, z


def pack(kernel: CompiledKernel, values: Sequence[bytes | np.ndarray | int]) -> bytes:
    """The parameter block: bytes unchanged, arrays by address, ints at the parameter's size."""
    block = bytearray(kernel.parameter_size)
    sizes, offsets = kernel.parameter_sizes, kernel.parameter_offsets
    for value, offset, size in zip(values, offsets, sizes, strict=True):
        if isinstance(value, np.ndarray):
            value = value.ctypes.data
        data = value if isinstance(value, bytes) else value.to_bytes(size, "little")
        assert len(data) == size
        block[offset : offset + size] = data
    return bytes(block)


def make_variables(module: CompiledModule) -> list[np.ndarray]:
    """Memory for the module's variables, with their initial values."""
    arrays = []
    for variable in module.variables:
        memory = np.zeros(max(variable.size, 1) + 64, np.uint8)
        start = -memory.ctypes.data % 64
        arrays.append(memory[start : start + variable.size])
    addresses = {
        variable.name: array.ctypes.data
        for variable, array in zip(module.variables, arrays, strict=True)
    }
    for variable, array in zip(module.variables, arrays, strict=True):
        size = variable.type.size
        for index, value in enumerate(variable.initial):
            bits = _bits(value, addresses) % (1 << 8 * size)
            array[index * size : (index + 1) * size] = list(bits.to_bytes(size, "little"))
    return arrays


def _bits(value: ir.Integer | ir.Float | ir.SymbolAddress, addresses: dict[str, int]) -> int:
    match value:
        case ir.SymbolAddress():
            return value.bits(addresses[value.symbol])
        case ir.Float():
            return value.bits
    return value.value


@dataclass(frozen=True)
class Started:
    """An execution, the module's variables, and all its memory, which lives as long as this
    object."""

    execution: Execution
    variables: list[np.ndarray]
    arrays: list[np.ndarray]

    def run(self) -> Outcome:
        return self.execution.run()


def start(
    module: CompiledModule,
    name: str,
    *,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[bytes | np.ndarray | int],
    shared_bytes: int = 0,
    budget: int = 2**20,
    recording: Recording | None = None,
    variables: list[np.ndarray] | None = None,
    memory: Sequence[np.ndarray] = (),
    workspace: int = 0,
) -> Started:
    """Start a kernel. Each array argument is an allocation, and so is each array of `memory`.

    The caller keeps `module` alive.
    """
    kernel = module.kernels[name]
    if variables is None:
        variables = make_variables(module)
    arrays = [*(value for value in args if isinstance(value, np.ndarray)), *variables, *memory]
    launch = Launch(
        dim3(grid),
        dim3(block),
        shared_bytes,
        pack(kernel, args),
        [array.ctypes.data for array in variables],
        AllocationSnapshot((a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays),
        budget,
        recording,
        workspace,
    )
    return Started(kernel.start(launch), variables, arrays)


def run(module: CompiledModule, name: str, *, turns: int = 10_000, **options: Any) -> Outcome:
    """Start a kernel and run it to its end.

    The outcome is DONE or FAULT, or YIELDED if the kernel still waits after `turns` turns.
    """
    execution = start(module, name, **options)
    outcome = execution.run()
    while outcome.kind is OutcomeKind.YIELDED and turns:
        outcome = execution.run()
        turns -= 1
    return outcome


def aligned(data: np.ndarray) -> np.ndarray:
    """A copy of an array whose address is a multiple of 64."""
    memory = np.zeros(data.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
    copy[...] = data
    return copy
