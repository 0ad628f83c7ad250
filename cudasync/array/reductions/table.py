"""Floor 4, reductions. The table of reductions: elements, combining, start and finish of each.

`start` combined with a state changes nothing. `of_nothing` is the result for no elements, None if
there is none. A float's sum starts with -0, which changes no sum; +0 would change a sum of -0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cudasync.array.dtypes.supported import (
    BOOL,
    DEFAULT_INT,
    FLOAT16,
    FLOAT32,
    INT64,
    UINT64,
)
from cudasync.array.expressions.tree import Input, Scalar, apply, cast
from cudasync.array.functions.table import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.expressions.tree import Expression
    from cudasync.array.functions.function import Function

    # Makes the tree of an element from the dtypes of operands and the dtype that is asked for.
    Element = Callable[[tuple[DType, ...], DType | None], Expression]

_WORDS = {"b": "bool", "i": "signed integers", "u": "unsigned integers", "f": "floats"}
_INFINITY = "__longlong_as_double(0x7ff0000000000000LL)"


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction. Each has one object.

    `finish` has `Scalar(0)`, the accumulated value, and may have `Scalar(1)`, a divisor. `finds` is
    set for reductions that give an index: the comparison by which the first value is better. The
    first NaN wins, and the first of equals.
    """

    name: str
    takes: str
    combine: Function | None
    start: Mapping[str, str]
    of_nothing: float | None
    element: Element
    finish: Callable[[DType, DType], Expression]
    gives: Callable[[DType], DType]
    finds: str = ""

    def accept(self, dtype: DType) -> None:
        """Raise TypeError unless it takes arrays of this dtype."""
        if dtype.kind not in self.takes:
            words = " and ".join(_WORDS[kind] for kind in self.takes)
            instead = "float32" if self.takes == "f" else "int8"
            raise TypeError(
                f"{self.name} takes {words}, not {dtype}: cast with xp.astype(x, xp.{instead})"
            )

    def start_of(self, dtype: DType) -> str:
        """The C of the start value."""
        text = next(text for kinds, text in self.start.items() if dtype.kind in kinds)
        if text not in ("LOW", "HIGH"):
            return text
        limits = np.iinfo(dtype)
        if text == "HIGH":
            return f"{limits.max}{'ULL' if dtype.kind == 'u' else 'LL'}"
        return "0" if dtype.kind == "u" else f"-{limits.max}LL - 1"


def accumulates(dtype: DType) -> DType:
    """The dtype in which a result of this dtype is accumulated."""
    return FLOAT32 if dtype == FLOAT16 else dtype


def total_dtype(dtype: DType) -> DType:
    """The default dtype of a sum or product: the default integer of the same signedness."""
    if dtype.kind == "u":
        return UINT64
    return DEFAULT_INT if dtype.kind in "bi" else dtype


def _same(dtype: DType) -> DType:
    return dtype


def _always(dtype: DType) -> Callable[[DType], DType]:
    return lambda _: dtype


def _as_it_is(dtypes: tuple[DType, ...], asked: DType | None) -> Expression:
    return Input(0, dtypes[0])


def _accumulated(dtypes: tuple[DType, ...], asked: DType | None) -> Expression:
    return cast(Input(0, dtypes[0]), accumulates(asked or total_dtype(dtypes[0])))


def _truth(dtypes: tuple[DType, ...], asked: DType | None) -> Expression:
    return cast(Input(0, dtypes[0]), BOOL)


def _counted(dtypes: tuple[DType, ...], asked: DType | None) -> Expression:
    return cast(_truth(dtypes, asked), INT64)


def _deviation(dtypes: tuple[DType, ...], asked: DType | None) -> Expression:
    """The squared difference of the first operand from the second, the mean."""
    of = dtypes[1]
    apart = apply(FUNCTIONS["subtract"], cast(Input(0, dtypes[0]), of), Input(1, of))
    return apply(FUNCTIONS["square"], apart)


def _product(dtypes: tuple[DType, ...], asked: DType | None) -> Expression:
    assert asked is not None
    of = accumulates(asked)
    return apply(FUNCTIONS["multiply"], *(cast(Input(i, e), of) for i, e in enumerate(dtypes)))


def _kept(found: DType, result: DType) -> Expression:
    return cast(Scalar(0, found), result)


def _divided(found: DType, result: DType) -> Expression:
    return cast(apply(FUNCTIONS["divide"], Scalar(0, found), Scalar(1, found)), result)


def _root(found: DType, result: DType) -> Expression:
    ratio = apply(FUNCTIONS["divide"], Scalar(0, found), Scalar(1, found))
    return cast(apply(FUNCTIONS["sqrt"], ratio), result)


_ZERO = {"f": "-0.0", "biu": "0"}
# `start_of`, which knows the dtype, fills in an integer's limit.
_LOW = {"f": f"-{_INFINITY}", "biu": "LOW"}
_HIGH = {"f": _INFINITY, "biu": "HIGH"}


def _total(name: str, function: str, start: Mapping[str, str], nothing: float) -> Reduction:
    return Reduction(
        name, "biuf", FUNCTIONS[function], start, nothing, _accumulated, _kept, total_dtype
    )


def _extreme(name: str, function: str, start: Mapping[str, str]) -> Reduction:
    return Reduction(name, "iuf", FUNCTIONS[function], start, None, _as_it_is, _kept, _same)


def _logic(name: str, function: str, start: str, *, nothing: bool) -> Reduction:
    combine, starts = FUNCTIONS[function], {"b": start}
    return Reduction(name, "biuf", combine, starts, nothing, _truth, _kept, _always(BOOL))


def _mean_of(
    name: str, element: Element, finish: Callable[[DType, DType], Expression]
) -> Reduction:
    return Reduction(name, "f", FUNCTIONS["add"], _ZERO, math.nan, element, finish, _same)


def _place(name: str, sign: str, start: Mapping[str, str]) -> Reduction:
    return Reduction(name, "iuf", None, start, None, _as_it_is, _kept, _always(INT64), sign)


ALL = (
    _total("sum", "add", _ZERO, 0),
    _total("prod", "multiply", {"biuf": "1"}, 1),
    _extreme("max", "maximum", _LOW),
    _extreme("min", "minimum", _HIGH),
    _logic("any", "logical_or", "false", nothing=False),
    _logic("all", "logical_and", "true", nothing=True),
    Reduction("count_nonzero", "biuf", FUNCTIONS["add"], _ZERO, 0, _counted, _kept, _always(INT64)),
    _mean_of("mean", _accumulated, _divided),
    _mean_of("var", _deviation, _divided),
    _mean_of("std", _deviation, _root),
    Reduction("vecdot", "iuf", FUNCTIONS["add"], _ZERO, 0, _product, _kept, _same),
    _place("argmax", ">", _LOW),
    _place("argmin", "<", _HIGH),
)
REDUCTIONS = {each.name: each for each in ALL}
