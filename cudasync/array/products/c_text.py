"""Floor 4, products. Pieces of CUDA C that the kernels of products share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.array.dtypes.supported import FLOAT16
from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.expressions.emission import stored
from cudasync.array.functions.helpers import needed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.dtypes.supported import DType


def sum_type(dtype: DType) -> str:
    """The C type in which products are summed. Integers are unsigned, because C defines their
    overflow; the low bits are those of the signed sum."""
    if dtype.kind == "f":
        return C_TYPES[dtype].value
    return "unsigned long long" if dtype.itemsize == 8 else "unsigned"


def loaded(place: str, dtype: DType, as_: str) -> str:
    """An element in memory, in the type of the sum."""
    return f"({as_})" + (f"from_half({place})" if dtype == FLOAT16 else place)


def kept(value: str, dtype: DType) -> str:
    """A sum, as an element of the result."""
    return stored(value, dtype) if dtype.kind == "f" else f"({C_TYPES[dtype].stored}){value}"


def places(number: str, rank: int, count: str) -> list[str]:
    """The indices `i0`, `i1`, ... along axes of lengths `l0`, ... for a number."""
    lines = []
    for axis in range(rank - 1, 0, -1):
        lines.append(f"const {count} i{axis} = {number} % l{axis};")
        lines.append(f"const {count} n{axis} = {number} / l{axis};")
        number = f"n{axis}"
    return [*lines, f"const {count} i0 = {number};"] if rank else []


def offset(operand: int, rank: int, step: str) -> str:
    """The offset of an operand's element at those indices."""
    return " + ".join(f"({step})i{axis} * s{operand}_{axis}" for axis in range(rank)) or "0"


def index_types(is_wide: bool) -> tuple[str, str]:
    """The types of a count and of a stride."""
    return ("unsigned long long", "long long") if is_wide else ("unsigned", "int")


def kernel_text(
    name: str, dtypes: Sequence[DType], parameters: Sequence[str], lines: Sequence[str]
) -> str:
    """A kernel with two operands and a result, of these dtypes, and numbers behind them."""
    left, right, result = (C_TYPES[each].stored for each in dtypes)
    pointers = [f"const {left}* p0", f"const {right}* p1", f"{result}* result"]
    text = "".join(f"    {line}\n" for line in lines)
    helpers = "\n".join(needed_by(text))
    return (
        f'{helpers}\nextern "C" __global__ void {name}({", ".join([*pointers, *parameters])})\n'
        f"{{\n{text}}}\n"
    )
