"""Floor 4, expressions. The C types of a dtype: of variables, elements and arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudasync.array.dtypes import supported as dtypes

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType


class CType(NamedTuple):
    """The C types of a variable that holds a value, of an element in memory and of a value as an
    argument, and the letter with which `struct` packs the argument."""

    value: str
    stored: str
    argument: str
    letter: str


_INTEGERS = ("char", "short", "int", "long long")


def _table() -> dict[DType, CType]:
    table = {dtypes.BOOL: CType("bool", "bool", "bool", "?")}
    for dtype, c_type, letter in zip(dtypes.ALL[1:5], _INTEGERS, "bhiq", strict=True):
        name = f"signed {c_type}"
        table[dtype] = CType(name, name, name, letter)
    for dtype, c_type, letter in zip(dtypes.ALL[5:9], _INTEGERS, "BHIQ", strict=True):
        name = f"unsigned {c_type}"
        table[dtype] = CType(name, name, name, letter)
    # A float16 value is a float that float16 can represent; an argument is not rounded yet.
    table[dtypes.FLOAT16] = CType("float", "unsigned short", "double", "d")
    table[dtypes.FLOAT32] = CType("float", "float", "float", "f")
    table[dtypes.FLOAT64] = CType("double", "double", "double", "d")
    return table


C_TYPES = _table()
