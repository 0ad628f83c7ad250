"""The parts of an experiment: input, programs on it, an expectation, and the right results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import cudasync as cs

if TYPE_CHECKING:
    import numpy as np

# A program takes the prepared arrays and returns its results without waiting for them.
Program: TypeAlias = Callable[..., Sequence[cs.Array]]
Clock: TypeAlias = Literal["device", "wall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment. The last two of `ways` are compared: first the way that waits."""

    name: str
    title: str
    # The expected behaviour, as a sentence; the figures follow it in the report.
    expectation: str
    # The clock of the figures: the device's if only devices work, else the wall clock.
    clock: Clock
    devices: int
    # The default side of the matrices.
    size: int
    prepare: Callable[[int], tuple[cs.Array, ...]]
    # Programs with the same results, bit for bit.
    ways: Mapping[str, Program]
    # Programs that are timed, too: parts of the work alone.
    parts: Mapping[str, Program] = field(default_factory=dict)
    # The same in NumPy: from the prepared arrays to the results.
    reference: Callable[..., Sequence[np.ndarray[Any, Any]]]
    # On the device's clock: the expected milliseconds of the last way, from those of the others.
    expected_ms: Callable[[Mapping[str, float]], float] | None = None
    # On the wall clock: see `intervals.shared`.
    least_shared: float = 0.5
    # A short remark on the results.
    remark: Callable[[Sequence[Any]], str] = lambda results: ""


def serially(program: Program) -> Program:
    """`program` with each operation completed before the next begins."""

    def run(*inputs: cs.Array) -> Sequence[cs.Array]:
        with cs.Engine("serial"):
            return program(*inputs)

    return run
