"""What an experiment consists of: input, programs on it, what to expect, and the right results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import cudasync as cs

if TYPE_CHECKING:
    import numpy as np

# A program takes the arrays that were prepared and returns its results, having waited for none.
Program: TypeAlias = Callable[..., Sequence[cs.Array]]
Clock: TypeAlias = Literal["device", "wall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment; the last two of `ways` are compared, the one that waits first."""

    name: str
    title: str
    # What the engine should do, as a sentence; the figures follow it in the report.
    expectation: str
    # By which clock: the device's where only devices work, else the wall clock.
    clock: Clock
    devices: int
    # The side of the matrices, where nobody says another.
    size: int
    prepare: Callable[[int], tuple[cs.Array, ...]]
    # Programs with the same results, bit for bit.
    ways: Mapping[str, Program]
    # What is timed beside them: parts of the work alone.
    parts: Mapping[str, Program] = field(default_factory=dict)
    # The same in NumPy: from the prepared arrays to the results.
    reference: Callable[..., Sequence[np.ndarray[Any, Any]]]
    # On the device's clock: milliseconds that the last way should take, from those of the others.
    expected_ms: Callable[[Mapping[str, float]], float] | None = None
    # On the wall clock: see `intervals.shared`.
    least_shared: float = 0.5
    # What the results say, in a few words.
    remark: Callable[[Sequence[Any]], str] = lambda results: ""


def serially(program: Program) -> Program:
    """`program`, each of its operations at its end before the next begins."""

    def run(*inputs: cs.Array) -> Sequence[cs.Array]:
        with cs.Engine("serial"):
            return program(*inputs)

    return run
