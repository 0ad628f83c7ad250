"""Floor 4, products. The kernel for problems that fill no squares: vectors, thin or small matrices.

Elements of the result are numbered. `parts` threads sum each element: thread p takes the products
p, p + parts, ... in order. Their sums are added in pairs that depend on `parts` alone.
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

BLOCK = 256


@dataclass(frozen=True, slots=True)
class Thin:
    """The properties that decide the text. With `is_along`, neighbours in a warp take neighbouring
    products of an element; otherwise the same products of neighbouring elements."""

    dtypes: tuple[DType, DType]
    dtype: DType
    parts: int
    is_along: bool
    rank: int
    is_wide: bool

    @property
    def outputs(self) -> int:
        """The number of elements that a block computes."""
        return BLOCK // self.parts

    @property
    def block(self) -> tuple[int, int]:
        return (self.parts, self.outputs) if self.is_along else (self.outputs, self.parts)


def source(kind: Thin, name: str) -> str:
    """The CUDA C. Parameters behind the arrays: the depth; the lengths of the result's axes; each
    operand's strides along these axes, then along the depth."""
    count, step = index_types(kind.is_wide)
    sums, parts = sum_type(kind.dtype), kind.parts
    parameters = [f"{count} depth", *(f"{count} l{axis}" for axis in range(kind.rank))]
    for at in (0, 1):
        parameters += [f"{step} s{at}_{axis}" for axis in range(kind.rank)]
        parameters.append(f"{step} deep{at}")
    total = " * ".join(f"l{axis}" for axis in range(kind.rank))
    part, output = ("x", "y") if kind.is_along else ("y", "x")
    first, second = (loaded(f"p{at}[({step})k * deep{at}]", kind.dtypes[at], sums) for at in (0, 1))
    lines = [
        f"const {count} k0 = threadIdx.{part};",
        f"const {count} i = ({count})blockIdx.x * {kind.outputs} + threadIdx.{output};",
        f"{sums} sum = 0;",
        f"if (i < {total}) {{",
        *(f"    {line}" for line in places("i", kind.rank, count)),
        f"    p0 += {offset(0, kind.rank, step)};",
        f"    p1 += {offset(1, kind.rank, step)};",
        f"    for ({count} k = k0; k < depth; k += {parts}) sum += {first} * {second};",
        "}",
    ]
    if parts > 1:
        place = f"[threadIdx.{output}]"
        lines += [
            f"__shared__ {sums} part[{parts}][{kind.outputs}];",
            f"part[k0]{place} = sum;",
            "__syncthreads();",
            f"for (int half = {parts // 2}; half > 0; half /= 2) {{",
            f"    if (k0 < half) part[k0]{place} += part[k0 + half]{place};",
            "    __syncthreads();",
            "}",
            f"sum = part[0]{place};",
        ]
    lines.append(f"if (k0 == 0 && i < {total}) result[i] = {kept('sum', kind.dtype)};")
    return kernel_text(name, (*kind.dtypes, kind.dtype), parameters, lines)
