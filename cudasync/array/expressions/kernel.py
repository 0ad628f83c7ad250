"""Floor 4, expressions. The CUDA C of a kernel: a tree, computed once for each element.

Its parameters are the tree's operands in order, pointers and numbers, then the result. Then come
values that depend on the layout alone: the lengths of the axes, and the strides of each array that
are not known to be 0 or 1. A thread computes one element.

A thread finds its element in one of two ways. *Linear*: threads are numbered, and with several axes
the number is divided. *Rows*: the last axis lies along x, and y and z count the others, so that the
division is the same for all threads of a warp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.expressions.emission import Body, stored
from cudasync.array.expressions.layout import MOST_SHORT
from cudasync.array.expressions.tree import Scalar, leaves, name_of
from cudasync.array.functions.helpers import needed_by

if TYPE_CHECKING:
    from cudasync.array.expressions.layout import Layout
    from cudasync.array.expressions.tree import Expression

_MOST_NAME = 48
# From this length on, the last axis gets threads of its own.
_ROW = 32
_BLOCK = 256
_MOST_Y = 65535


@dataclass(frozen=True, slots=True)
class LayoutClass:
    """The properties that decide the text. `steps` has the stride along the last axis of each array
    operand, and of the result: 0, 1, or None for any other."""

    rank: int
    by_rows: bool
    is_wide: bool
    steps: tuple[int | None, ...]


def class_of(layout: Layout) -> LayoutClass:
    """The class of a layout with at least one axis."""
    reach = max(
        sum(abs(step) * (length - 1) for step, length in zip(steps, layout.lengths, strict=True))
        for steps in (*layout.strides, _ones_of(layout))
    )
    steps = tuple(each[-1] if each[-1] in (0, 1) else None for each in layout.strides)
    rank = len(layout.lengths)
    by_rows = rank > 1 and layout.lengths[-1] >= _ROW
    return LayoutClass(rank, by_rows, reach >= MOST_SHORT, steps)


def _ones_of(layout: Layout) -> tuple[int, ...]:
    """Strides that number the elements in order."""
    strides = [1]
    for length in layout.lengths[:0:-1]:
        strides.append(strides[-1] * length)
    return tuple(reversed(strides))


def constants(layout: Layout, kind: LayoutClass) -> list[int]:
    """The values of the parameters behind the result, for one layout of the class."""
    values = [*layout.lengths]
    for steps, last in zip(layout.strides, kind.steps, strict=True):
        values += steps[:-1]
        values += [steps[-1]] if last is None else []
    return values


def launch_shape(layout: Layout, kind: LayoutClass) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Grid and block that cover the layout."""
    count = 1
    for length in layout.lengths:
        count *= length
    if not kind.by_rows:
        return (-(-count // _BLOCK),), (_BLOCK,)
    columns = layout.lengths[-1]
    across = min(_BLOCK, 1 << (columns - 1).bit_length())
    down = _BLOCK // across
    blocks = -(-(count // columns) // down)
    deep = -(-blocks // _MOST_Y)
    return (-(-columns // across), -(-blocks // deep), deep), (across, down)


def kernel_name(tree: Expression) -> str:
    """A name in C for the kernel of a tree."""
    return re.sub(r"\W", "_", f"{name_of(tree)[:_MOST_NAME]}_{tree.dtype.name}")


def source(tree: Expression, kind: LayoutClass) -> str:
    """The CUDA C of the kernel for trees of this value, and layouts of this class."""
    operands = {leaf.position: leaf for leaf in leaves(tree) if hasattr(leaf, "position")}
    arrays = [at for at in sorted(operands) if not isinstance(operands[at], Scalar)]
    steps = dict(zip([*map(str, arrays), "r"], kind.steps, strict=True))
    parameters = []
    for at in sorted(operands):
        c_type = C_TYPES[operands[at].dtype]
        parameters.append(
            f"const {c_type.stored}* p{at}" if at in arrays else f"{c_type.argument} p{at}"
        )
    parameters.append(f"{C_TYPES[tree.dtype].stored}* result")
    count, step = ("unsigned long long", "long long") if kind.is_wide else ("unsigned", "int")
    parameters += [f"{count} l{axis}" for axis in range(kind.rank)]
    for who, last in steps.items():
        axes = range(kind.rank if last is None else kind.rank - 1)
        parameters += [f"{step} s{who}_{axis}" for axis in axes]
    place = _rows(kind.rank, count) if kind.by_rows else _linear(kind.rank, count)
    offsets = {who: _offset(who, kind.rank, last, step) for who, last in steps.items()}
    body = Body({at: offsets[str(at)] for at in arrays}, "i")
    value = stored(body.value(tree), tree.dtype)
    lines = [*place, *body.lines, f"result[{offsets['r']}] = {value};"]
    helpers = "\n".join(needed_by("\n".join(lines)))
    text = "".join(f"    {line}\n" for line in lines)
    return (
        f"{helpers}\n"
        f'extern "C" __global__ void {kernel_name(tree)}({", ".join(parameters)})\n'
        f"{{\n{text}}}\n"
    )


def _linear(rank: int, count: str) -> list[str]:
    """From the thread's number `i` to its index along each axis."""
    total = " * ".join(f"l{axis}" for axis in range(rank))
    lines = [
        f"const {count} i = ({count})blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (i >= {total}) return;",
    ]
    return [*lines, *_divided("i", rank, count)] if rank > 1 else [*lines, f"const {count} i0 = i;"]


def _rows(rank: int, count: str) -> list[str]:
    rows = " * ".join(f"l{axis}" for axis in range(rank - 1))
    last = rank - 1
    return [
        f"const {count} i{last} = ({count})blockIdx.x * blockDim.x + threadIdx.x;",
        f"const {count} row = (({count})blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y"
        " + threadIdx.y;",
        f"if (i{last} >= l{last} || row >= {rows}) return;",
        *(_divided("row", last, count) if last > 1 else [f"const {count} i0 = row;"]),
    ]


def _divided(number: str, rank: int, count: str) -> list[str]:
    """The indices along `rank` axes for a number, the last axis fastest."""
    lines = []
    for axis in range(rank - 1, 0, -1):
        lines.append(f"const {count} i{axis} = {number} % l{axis};")
        lines.append(f"const {count} n{axis} = {number} / l{axis};")
        number = f"n{axis}"
    return [*lines, f"const {count} i0 = {number};"]


def _offset(who: str, rank: int, last: int | None, step: str) -> str:
    terms = [f"({step})i{axis} * s{who}_{axis}" for axis in range(rank - 1)]
    if last == 1:
        # Signed beside other terms, which may be below 0.
        terms.append(f"({step})i{rank - 1}" if terms else f"i{rank - 1}")
    elif last is None:
        terms.append(f"({step})i{rank - 1} * s{who}_{rank - 1}")
    return " + ".join(terms) or "0"
