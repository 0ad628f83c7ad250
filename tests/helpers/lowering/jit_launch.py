"""Runs kernels through the compiled-code interface, on NumPy memory, without a driver."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cudasync.ptx import parse
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, Outcome, OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.launch.work_distribution import JitExecution

CORPUS = Path(__file__).parents[2] / "softgpu" / "corpus"


@functools.cache
def compiled(text: str, **settings: bool):
    """Compile a module from PTX text, once."""
    return compile_module(parse(text), **settings)


def corpus(name: str, **settings: bool):
    """Compile a file of the corpus."""
    return compiled((CORPUS / f"{name}.ptx").read_text(), **settings)


def pack(kernel, args) -> bytes:
    """The parameter block: arrays by address, NumPy scalars by their bytes."""
    block = bytearray(kernel.parameter_size)
    places = zip(args, kernel.parameter_offsets, kernel.parameter_sizes, strict=True)
    for argument, offset, size in places:
        if isinstance(argument, np.ndarray):
            raw = argument.ctypes.data.to_bytes(8, "little")
        elif isinstance(argument, int):
            raw = (argument % (1 << 8 * size)).to_bytes(size, "little")
        else:
            raw = argument.tobytes()
        assert len(raw) == size, (argument, size)
        block[offset : offset + size] = raw
    return bytes(block)


def three(extent) -> tuple[int, int, int]:
    extent = (extent,) if isinstance(extent, int) else tuple(extent)
    return (*extent, 1, 1)[:3]


@dataclass(frozen=True)
class Started:
    """An execution and its memory, which stays alive for later runs."""

    execution: JitExecution
    arrays: list[np.ndarray]

    def run(self) -> Outcome:
        return self.execution.run()

    def stop(self) -> None:
        self.execution.stop()


def start(module, name, grid, block, *args, dynamic=0, symbols=(), memory=(), budget=2**31):
    """Start an execution; it may touch the arrays among `args`, `symbols` and `memory`."""
    kernel = module.kernels[name]
    arrays = [each for each in (*args, *symbols, *memory) if isinstance(each, np.ndarray)]
    ranges = {(each.ctypes.data, each.ctypes.data + each.nbytes) for each in arrays}
    launch = Launch(
        grid=three(grid),
        block=three(block),
        dynamic_shared_bytes=dynamic,
        parameters=pack(kernel, args),
        symbols=[each.ctypes.data for each in symbols],
        allocations=AllocationSnapshot(ranges),
        budget=budget,
    )
    return Started(kernel.start(launch), arrays)


def run(module, name, grid, block, *args, **options) -> None:
    """Run a kernel to its end; a fault or a yield fails the test."""
    outcome = start(module, name, grid, block, *args, **options).run()
    assert outcome.kind is OutcomeKind.DONE, outcome


def fault_of(module, name, grid, block, *args, **options):
    """Run a kernel that must fault, and return the fault."""
    outcome = start(module, name, grid, block, *args, **options).run()
    assert outcome.kind is OutcomeKind.FAULT, outcome
    return outcome.fault
