"""Floor 4, products. The kernel for matrices: a block computes a square of the result.

Its threads, one for each element, fetch a square of each operand into shared memory. Then each
thread sums its row by its column, and goes on along the depth. The sum runs from front to back,
whatever the grid. Blocks are numbered along x: squares across, squares down, matrices of the stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.products.c_text import (
    index_types,
    kept,
    kernel_text,
    loaded,
    offset,
    places,
    sum_type,
)

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType

# The side of a square. On the software GPU 32 is 1.5 times faster than 16, see bench_softgpu.
SIDE = 32

# The axis of an operand with neighbours in memory: the threads of a warp lie along it.
ROWS, COLUMNS = "rows", "columns"


@dataclass(frozen=True, slots=True)
class Tiling:
    """The properties that decide the text. `along` has the axis of each operand along which warps
    fetch, `is_dense` whether neighbours on it are neighbours in memory."""

    dtypes: tuple[DType, DType]
    dtype: DType
    along: tuple[str, str]
    is_dense: tuple[bool, bool]
    rank: int
    is_wide: bool


def source(kind: Tiling, name: str) -> str:
    """The CUDA C. Parameters behind the arrays: rows, columns and depth; the lengths of the stack's
    axes; each operand's strides along these axes, then of its rows and columns."""
    count, step = index_types(kind.is_wide)
    sums = sum_type(kind.dtype)
    parameters = [f"{count} {each}" for each in ("rows", "columns", "depth")]
    parameters += [f"{count} l{axis}" for axis in range(kind.rank)]
    for at in (0, 1):
        parameters += [f"{step} s{at}_{axis}" for axis in range(kind.rank)]
        parameters += [f"{step} down{at}", f"{step} across{at}"]
    value = kept("sum", kind.dtype)
    lines = [
        f"__shared__ {sums} left[{SIDE}][{_width(kind, 0)}], right[{SIDE}][{_width(kind, 1)}];",
        "const unsigned i = threadIdx.x, j = threadIdx.y;",
        f"const {count} squares = (columns + {SIDE - 1}) / {SIDE};",
        f"const {count} above = blockIdx.x / squares;",
        f"const {count} column = blockIdx.x % squares * {SIDE};",
        f"const {count} bands = (rows + {SIDE - 1}) / {SIDE};",
        f"const {count} row = above % bands * {SIDE}, matrix = above / bands;",
        *places("matrix", kind.rank, count),
        f"p0 += {offset(0, kind.rank, step)};",
        f"p1 += {offset(1, kind.rank, step)};",
        f"{sums} sum = 0;",
        f"for ({count} from = 0; from < depth; from += {SIDE}) {{",
        *_fetched("left", 0, "row", "rows", "from", "depth", kind),
        *_fetched("right", 1, "from", "depth", "column", "columns", kind),
        "    __syncthreads();",
        f"    for (int k = 0; k < {SIDE}; k++) sum += left[j][k] * right[k][i];",
        "    __syncthreads();",
        "}",
        "if (row + j < rows && column + i < columns)",
        f"    result[(matrix * rows + row + j) * columns + column + i] = {value};",
    ]
    return kernel_text(name, (*kind.dtypes, kind.dtype), parameters, lines)


def _width(kind: Tiling, at: int) -> int:
    # A square that is written by columns is one element wider, to avoid bank conflicts.
    return SIDE + (kind.along[at] == COLUMNS)


def _fetched(
    square: str, at: int, row: str, rows: str, column: str, columns: str, kind: Tiling
) -> list[str]:
    """A thread fetches an element; beyond the matrix a zero, which adds nothing."""
    down, across = ("j", "i") if kind.along[at] == ROWS else ("i", "j")
    _, step = index_types(kind.is_wide)
    steps = {"down": f" * down{at}", "across": f" * across{at}"}
    if kind.is_dense[at]:
        steps["across" if kind.along[at] == ROWS else "down"] = ""
    y, x = f"{row} + {down}", f"{column} + {across}"
    place = f"({step})({y}){steps['down']} + ({step})({x}){steps['across']}"
    sums = sum_type(kind.dtype)
    value = loaded(f"p{at}[{place}]", kind.dtypes[at], sums)
    return [
        f"    {square}[{down}][{across}] =",
        f"        {y} < {rows} && {x} < {columns} ? {value} : ({sums})0;",
    ]
