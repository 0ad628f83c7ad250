"""Floor 4, functions. Comparisons, tests of a value, logic, bits and choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudasync.array.functions.function import Function, of_ufunc


def _compares(name: str, sign: str, kinds: str = "iuf") -> Function:
    return of_ufunc(name, {kinds: f"{{0}} {sign} {{1}}"}, gives_bool=True)


def _asks(name: str, text: str, of_integers: str) -> Function:
    return of_ufunc(name, {"iu": of_integers, "f": text}, gives_bool=True)


def _logic(name: str, text: str) -> Function:
    return of_ufunc(name, {"b": text}, gives_bool=True)


def _bits(ufunc: str, sign: str, logic: str, name: str = "") -> Function:
    text = f"({{T}})({{0}} {sign} {{1}})"
    made = getattr(np, ufunc)
    return Function(name or ufunc, 2, {"b": f"{{0}} {logic} {{1}}", "iu": text}, made)


def _where(condition: Any, x: Any, y: Any, out: Any = None) -> Any:
    if out is None:
        return np.where(condition, x, y)
    np.copyto(out, np.where(condition, x, y))
    return out


# A shift by at least the width of the type, or by a negative number, leaves only the sign.
_SHIFT = "(unsigned long long){1} < 8 * sizeof({T}) ? ({T})({0} %s {1}) : "
_LEFT = "(unsigned long long){1} < 8 * sizeof({T}) ? ({T})((unsigned long long){0} << {1}) : ({T})0"

COMPARING = (
    _compares("equal", "==", "biuf"),
    _compares("not_equal", "!=", "biuf"),
    _compares("less", "<"),
    _compares("less_equal", "<="),
    _compares("greater", ">"),
    _compares("greater_equal", ">="),
    _asks("isnan", "isnan({0})", "false"),
    _asks("isinf", "isinf({0})", "false"),
    _asks("isfinite", "isfinite({0})", "true"),
    of_ufunc("signbit", {"f": "signbit({0})"}, gives_bool=True),
    _logic("logical_and", "{0} && {1}"),
    _logic("logical_or", "{0} || {1}"),
    _logic("logical_xor", "{0} != {1}"),
    _logic("logical_not", "!{0}"),
    _bits("bitwise_and", "&", "&&"),
    _bits("bitwise_or", "|", "||"),
    _bits("bitwise_xor", "^", "!="),
    Function("bitwise_invert", 1, {"b": "!{0}", "iu": "({T})~{0}"}, np.invert),
    Function("bitwise_left_shift", 2, {"iu": _LEFT}, np.left_shift),
    Function(
        "bitwise_right_shift",
        2,
        {"i": _SHIFT % ">>" + "({T})({0} < 0 ? -1 : 0)", "u": _SHIFT % ">>" + "({T})0"},
        np.right_shift,
    ),
    Function("where", 3, {"biuf": "{0} ? {1} : {2}"}, _where, selects=True),
)
