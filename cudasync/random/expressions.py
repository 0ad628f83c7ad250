"""Floor 4, random. The expressions that the calls of a generator compute.

Their operands are the key, the first number, the index and the call's own parameters. Key and first
number are numbers, or arrays of one element for draws that a launch counts in memory.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cudasync.array.dtypes.supported import FLOAT32, FLOAT64, UINT64
from cudasync.array.elementwise.operation import Operation
from cudasync.array.expressions.tree import Apply, Index, Input, Scalar, apply, cast
from cudasync.array.functions.random import BELOW, BITS, DOUBLE, NORMAL, SINGLE
from cudasync.array.functions.table import FUNCTIONS

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType
    from cudasync.array.expressions.tree import Expression

_AS_NUMBERS = (Scalar(0, UINT64), Scalar(1, UINT64))
_IN_MEMORY = (Input(0, UINT64), Input(1, UINT64))
_INDEX = Index(UINT64)


def _place(is_stored: bool) -> tuple[Expression, Expression]:
    return _IN_MEMORY if is_stored else _AS_NUMBERS


def _operation(name: str, tree: Expression) -> Operation:
    return Operation(name, lambda operands: tree)


def _scaled(tree: Expression) -> Expression:
    """The tree times the one parameter, plus the other."""
    wide = apply(FUNCTIONS["multiply"], tree, Scalar(3, tree.dtype))
    return apply(FUNCTIONS["add"], wide, Scalar(2, tree.dtype))


@cache
def uniform(dtype: DType, is_stored: bool = False) -> Operation:
    """Parameters: the lower limit and the distance of the upper one from it."""
    function = SINGLE if dtype == FLOAT32 else DOUBLE
    return _operation("uniform", _scaled(Apply(function, (*_place(is_stored), _INDEX), dtype)))


@cache
def normal(dtype: DType, is_stored: bool = False) -> Operation:
    """Parameters: mean and standard deviation."""
    standard = cast(Apply(NORMAL, (*_place(is_stored), _INDEX), FLOAT64), dtype)
    return _operation("normal", _scaled(standard))


@cache
def integers(dtype: DType, is_stored: bool = False) -> Operation:
    """Parameters: the number of integers, 0 for 2^64; the lowest integer, modulo 2^64."""
    drawn = Apply(BELOW, (*_place(is_stored), Scalar(2, UINT64), _INDEX), UINT64)
    return _operation("integers", cast(apply(FUNCTIONS["add"], drawn, Scalar(3, UINT64)), dtype))


@cache
def bits(dtype: DType, is_stored: bool = False) -> Operation:
    """64 random bits each, as uint64."""
    return _operation("random_bits", Apply(BITS, (*_place(is_stored), _INDEX), dtype))
