"""Floor 4, functions. Arithmetic on integers and floats: NumPy's bits, with wrap."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudasync.array.functions.function import Function, of_ufunc

_SAME = {"iuf": "{0}"}


def _rounding(name: str, text: str) -> Function:
    """A function that leaves integers unchanged."""
    return of_ufunc(name, {"iu": "{0}", "f": text})


def _imag(x: object) -> object:
    return np.zeros_like(x)


def _power(base: Any, exponent: Any) -> Any:
    """NumPy's power; an integer to a negative power, which NumPy refuses, is 1 / base truncated."""
    base, exponent = np.asarray(base), np.asarray(exponent)
    if exponent.dtype.kind != "i" or not (exponent < 0).any():
        return np.power(base, exponent)
    is_below = exponent < 0
    sign = np.where(exponent % 2, base, base * base)
    left = np.where(np.abs(base) == 1, sign, 0)
    return np.where(is_below, left, np.power(base, np.where(is_below, 0, exponent)))


# Integers are computed as unsigned ones of 64 bits and cut, because signed overflow is undefined in
# C; compilers narrow the operation again.
_W = "unsigned long long"

ARITHMETIC = (
    of_ufunc("add", {"iu": f"({{T}})(({_W}){{0}} + ({_W}){{1}})", "f": "{0} + {1}"}),
    of_ufunc("subtract", {"iu": f"({{T}})(({_W}){{0}} - ({_W}){{1}})", "f": "{0} - {1}"}),
    of_ufunc("multiply", {"iu": f"({{T}})(({_W}){{0}} * ({_W}){{1}})", "f": "{0} * {1}"}),
    of_ufunc("divide", {"f": "{0} / {1}"}),
    of_ufunc(
        "floor_divide",
        {
            "i": "divide_signed({0}, {1})",
            "u": "{1} ? {0} / {1} : ({T})0",
            "f": "divide_floor({0}, {1})",
        },
    ),
    of_ufunc(
        "remainder",
        {
            "i": "remainder_signed({0}, {1})",
            "u": "{1} ? {0} % {1} : ({T})0",
            "f": "remainder_floor({0}, {1})",
        },
    ),
    Function("pow", 2, {"iu": "power({0}, {1})", "f": "power_of_floats({0}, {1})"}, _power),
    of_ufunc("negative", {"iu": f"({{T}})(0 - ({_W}){{0}})", "f": "-{0}"}),
    of_ufunc("positive", _SAME),
    Function(
        "abs",
        1,
        {"i": f"{{0}} < 0 ? ({{T}})(0 - ({_W}){{0}}) : {{0}}", "u": "{0}", "f": "fabs({0})"},
        np.absolute,
    ),
    of_ufunc("square", {"iu": f"({{T}})(({_W}){{0}} * ({_W}){{0}})", "f": "{0} * {0}"}),
    of_ufunc("reciprocal", {"f": "({T})1 / {0}"}),
    of_ufunc("sqrt", {"f": "sqrt({0})"}),
    # As in NumPy, a zero of either sign gives +0, and NaN gives NaN.
    of_ufunc(
        "sign",
        {
            "i": "({T})(({0} > 0) - ({0} < 0))",
            "u": "({T})({0} > 0)",
            "f": "{0} > 0 ? ({T})1 : {0} < 0 ? ({T})-1 : {0} == 0 ? ({T})0 : {0}",
        },
    ),
    of_ufunc(
        "maximum", {"iu": "{0} >= {1} ? {0} : {1}", "f": "({0} >= {1}) | ({0} != {0}) ? {0} : {1}"}
    ),
    of_ufunc(
        "minimum", {"iu": "{0} <= {1} ? {0} : {1}", "f": "({0} <= {1}) | ({0} != {0}) ? {0} : {1}"}
    ),
    _rounding("ceil", "ceil({0})"),
    _rounding("floor", "floor({0})"),
    _rounding("trunc", "trunc({0})"),
    Function("round", 1, {"iu": "{0}", "f": "rint({0})"}, np.round),
    Function("real", 1, _SAME, np.positive),
    Function("conj", 1, _SAME, np.positive),
    Function("imag", 1, {"iuf": "({T})0"}, _imag),
)
