"""Cellar, abi. Commands in streams that start bit generators and draw numbers.

A draw reads and writes the generator's state and reads its parameters when it executes, as CuPy's
kernels do. So checks, graphs and explorations see what it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudasync.softgpu.abi.cupy.device_memory import array_at, strided_at
from cudasync.softgpu.abi.cupy.random.bit_streams import STATE_BYTES, BitStream, load
from cudasync.softgpu.core.driver_types.result_codes import LAUNCH_FAILED, DriverFailure
from cudasync.softgpu.core.graphs.library_calls import enqueue_routine

if TYPE_CHECKING:
    from cudasync.softgpu.abi.cupy.random.distributions import Distribution
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.streams import Stream

_WORD: Final = np.dtype(np.uint64)


@dataclass(frozen=True, slots=True)
class Operand:
    """An array in device memory: strides are in bytes, and may be zero or negative."""

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """The address of the array's first byte in memory, and the bytes up to its last one."""
        if not prod(self.shape):
            return self.address, 0
        steps = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        low = sum(step for step in steps if step < 0)
        high = sum(step for step in steps if step > 0)
        return self.address + low, high - low + self.dtype.itemsize

    def view(self) -> np.ndarray[Any, Any]:
        """The elements; valid while the command executes."""
        return strided_at(*self.span, self.address, self.dtype, self.shape, self.strides)


def start(machine: Machine, stream: Stream, kind: int, state: int, seed: int) -> None:
    """Enqueue a command that writes the state of a new bit generator."""

    def run() -> None:
        BitStream(kind, seed).save(_words(state))

    writes = [(state, STATE_BYTES)]
    enqueue_routine(machine, stream, "cupy.random's init_curand", run, writes=writes)


def draw(
    machine: Machine,
    stream: Stream,
    state: int,
    name: str,
    distribution: Distribution,
    target: Operand,
    parameters: tuple[Operand | int, ...] = (),
) -> None:
    """Enqueue a command that fills `target`, which has no gaps, and advances the generator.

    Parameters outside the distribution's domain make the command fail (LAUNCH_FAILED).
    """
    called = f"cupy.random.Generator.{name}"

    def run() -> None:
        words = _words(state)
        stream_of_bits = load(words)
        given = [each.view() if isinstance(each, Operand) else each for each in parameters]
        try:
            numbers = distribution(stream_of_bits.generator(), target.shape, *given)
        except ValueError as problem:
            raise DriverFailure(LAUNCH_FAILED, str(problem)) from None
        array_at(target.address, target.dtype, target.shape)[...] = numbers
        stream_of_bits.after().save(words)

    own = (state, STATE_BYTES)
    read = [each.span for each in parameters if isinstance(each, Operand)]
    written = [own, (target.address, prod(target.shape) * target.dtype.itemsize)]
    enqueue_routine(machine, stream, called, run, reads=[own, *read], writes=written)


def _words(state: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return array_at(state, _WORD, (STATE_BYTES // _WORD.itemsize,))
