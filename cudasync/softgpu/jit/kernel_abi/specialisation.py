"""Cellar, jit. What one PTX text may be compiled as: for which blocks, and with which checks."""

from __future__ import annotations

from dataclasses import dataclass

# LLVM's time for a function grows faster than its text from some thousand lines on.
PIECE_WEIGHT = 4000


@dataclass(frozen=True, slots=True)
class Variant:
    """What the code may assume of a block's shape.

    `lanes` is the width of a warp in code; 16 is only for kernels that cannot tell. `is_rowwise`:
    the threads of a warp differ in tid.x alone, by one from lane to lane. `is_whole`: the last
    warp of a block is full, too.
    """

    lanes: int
    is_rowwise: bool
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """How a module is compiled. `assume_varying` gives up all shapes: for comparison in tests.
    `record` is for launches whose accesses are taken down, `races` for those whose threads are held
    against each other, `convergence` for those of which it is looked at who comes to barriers."""

    memcheck: bool = True
    assume_varying: bool = False
    record: bool = False
    races: bool = False
    convergence: bool = False
    piece_weight: int = PIECE_WEIGHT
