"""Floor 4, scans. The CUDA C of one pass: each thread goes through one part of one row.

A pass leaves the total of each part or, given the total before each part, the results. Its numbers:
rows, parts of a row, elements of a row, elements of a part, results before the first element; the
lengths of the kept axes; then the strides of the elements and of the results, along those axes and
the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.expressions.emission import Body, stored
from cudasync.array.expressions.tree import Input, Scalar, cast
from cudasync.array.functions.helpers import needed_by

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType
    from cudasync.array.reductions.table import Reduction


@dataclass(frozen=True, slots=True)
class Pass:
    """The properties that decide the text. Elements of `dtype` are accumulated as `found`; results
    are `result`. With `by_rows` neighbouring threads have neighbouring rows, else neighbouring
    parts."""

    reduction: Reduction
    dtype: DType
    found: DType
    result: DType
    rank: int
    by_rows: bool
    is_wide: bool
    has_carry: bool
    gives_totals: bool


def kernel_name(kind: Pass) -> str:
    """A name in C for the kernel."""
    return f"cumulative_{kind.reduction.name}_{kind.found.name}"


def source(kind: Pass) -> str:
    """The text of the kernel."""
    assert kind.reduction.combine is not None
    count, step = ("unsigned long long", "long long") if kind.is_wide else ("unsigned", "int")
    value = C_TYPES[kind.found].value
    parameters = [f"const {C_TYPES[kind.dtype].stored}* p0"]
    parameters += [f"const {value}* carry"] if kind.has_carry else []
    parameters.append(f"{C_TYPES[kind.result].stored}* result")
    names = ["rows", "parts", "length", "chunk", "before", *(f"l{i}" for i in range(kind.rank))]
    parameters += [f"{count} {name}" for name in names]
    strides = [f"{who}{axis}" for who in "xr" for axis in range(kind.rank + 1)]
    parameters += [f"{step} {name}" for name in strides]
    body = Body({0: "place"}, "at")
    element = body.value(cast(Input(0, kind.dtype), kind.found))
    finish = Body({}, "0")
    given = stored(finish.value(cast(Scalar(0, kind.found), kind.result)), kind.result)
    combined = kind.reduction.combine.text(kind.found, ("a", "b"), "value_type")
    start = f"(value_type)({kind.reduction.start_of(kind.found)})"
    carried = "part ? carry[(unsigned long long)row * parts + part - 1] : "
    lines = [
        f"const {count} number = ({count})blockIdx.x * blockDim.x + threadIdx.x;",
        "if (number >= rows * parts) return;",
        f"const {count} row = number {'%' if kind.by_rows else '/'} "
        f"{'rows' if kind.by_rows else 'parts'};",
        f"const {count} part = number {'/ rows' if kind.by_rows else '% parts'};",
        *_divided(kind.rank, count),
        f"{step} place = {_offset('x', kind.rank, step)};",
        f"{count} at = part * chunk;",
        f"const {count} end = length - at < chunk ? length : at + chunk;",
        f"place += ({step})at * x{kind.rank};",
        f"value_type state = {carried if kind.has_carry else ''}{start};",
        f"const auto finish = [&](value_type p0) {{ {' '.join(finish.lines)} return {given}; }};",
    ]
    step_on = [*body.lines, f"state = combine(state, {element});", f"place += x{kind.rank};"]
    if kind.gives_totals:
        lines += ["for (; at < end; at++) {", *(f"    {line}" for line in step_on), "}"]
        lines.append("result[(unsigned long long)row * parts + part] = state;")
    else:
        lines += [
            f"{step} to = {_offset('r', kind.rank, step)};",
            f"if (before && part == 0) result[to] = finish({start});",
            f"to += ({step})(at + before) * r{kind.rank};",
            "for (; at < end; at++) {",
            *(f"    {line}" for line in step_on),
            f"    result[to] = finish(state);\n        to += r{kind.rank};",
            "}",
        ]
    text = "".join(f"    {line}\n" for line in lines)
    helpers = (
        f"typedef {value} value_type;\n"
        f"__device__ value_type combine(value_type a, value_type b) {{ return {combined}; }}"
    )
    return "\n".join(
        [
            *needed_by(text + helpers),
            helpers,
            f'extern "C" __global__ void {kernel_name(kind)}({", ".join(parameters)})',
            f"{{\n{text}}}\n",
        ]
    )


def _divided(rank: int, count: str) -> list[str]:
    lines, number = [], "row"
    for axis in range(rank - 1, 0, -1):
        lines.append(f"const {count} i{axis} = {number} % l{axis}, n{axis} = {number} / l{axis};")
        number = f"n{axis}"
    return [*lines, f"const {count} i0 = {number};"]


def _offset(who: str, rank: int, step: str) -> str:
    return " + ".join(f"({step})i{axis} * {who}{axis}" for axis in range(rank))
