"""Cellar, jit. The forms in which one PTX text may be compiled: block shapes and checks."""

from __future__ import annotations

from dataclasses import dataclass

# From some thousand lines on, LLVM's time for a function grows faster than its text.
PIECE_WEIGHT = 4000


@dataclass(frozen=True, slots=True)
class Variant:
    """The assumptions of the code about a block's shape.

    `lanes` is the width of a warp in code; 16 is only for kernels that cannot tell. `is_rowwise`:
    the threads of a warp differ in tid.x alone, by one from lane to lane. `is_whole`: the last
    warp of a block is also full. `quiet` has the positions of accesses to shared memory that cannot
    race in such blocks; only code that is compiled with `races` is told.
    """

    lanes: int
    is_rowwise: bool
    is_whole: bool
    quiet: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """How a module is compiled. `assume_varying` gives up all shapes, for comparison in tests.
    `record` records accesses, with plain loads only if `reads`. `windows` finds reads of unwritten
    shared and local memory. `races` checks threads for races. `convergence` checks which threads
    arrive at barriers. With `units`, marks of recorded accesses are by the unit of all accesses."""

    memcheck: bool = True
    assume_varying: bool = False
    record: bool = False
    races: bool = False
    convergence: bool = False
    reads: bool = True
    windows: bool = False
    units: bool = False
    piece_weight: int = PIECE_WEIGHT

    @property
    def has_units(self) -> bool:
        """Whether a mark stands for a unit. Only memcheck ensures that accesses are aligned."""
        return self.units and self.memcheck
