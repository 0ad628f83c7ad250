"""Cellar, jit. Estimates how many lines of LLVM text instructions become.

Weights only decide where a function is split: a wrong weight costs time, nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx.ir import Instruction

_WEIGHTS = {
    "ld": 30,
    "st": 30,
    "ldu": 30,
    "atom": 30,
    "red": 30,
    "cp": 40,
    "call": 40,
    "mma": 70,
    "wmma": 70,
    "ldmatrix": 60,
    "stmatrix": 60,
    "div": 12,
    "bra": 10,
    "ret": 10,
    "exit": 10,
    "bar": 20,
    "barrier": 20,
}
_USUAL = 4


def weight(instruction: Instruction) -> int:
    """About how many lines of LLVM text an instruction becomes."""
    return _WEIGHTS.get(instruction.opcode, _USUAL)


def total(body: Sequence[Instruction]) -> int:
    """The total weight of these instructions."""
    return sum(map(weight, body))
