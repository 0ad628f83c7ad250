"""Floor 4, functions. Exponentials, logarithms, trigonometry and the bits of floats.

Functions whose error in CUDA's float32 exceeds 2 ulp are wide. (CUDA C++ Programming Guide,
"Mathematical Functions", maximum ulp error)
"""

from __future__ import annotations

import numpy as np

from cudasync.array.functions.function import Function, arity_of, of_ufunc


def _of_c(name: str, c_name: str = "", *, is_wide: bool = False) -> Function:
    return of_ufunc(name, {"f": f"{c_name or name}({{0}})"}, is_wide=is_wide)


def _renamed(name: str, ufunc: np.ufunc, *, is_wide: bool = False) -> Function:
    arguments = ", ".join(f"{{{i}}}" for i in range(arity_of(ufunc)))
    return Function(name, arity_of(ufunc), {"f": f"{name}({arguments})"}, ufunc, is_wide=is_wide)


TRANSCENDENTAL = (
    _of_c("exp", "exponential"),
    _of_c("expm1"),
    _of_c("log"),
    _of_c("log1p"),
    _of_c("log2"),
    _of_c("log10"),
    of_ufunc("logaddexp", {"f": "log_add_exp({0}, {1})"}, is_wide=True),
    of_ufunc("hypot", {"f": "hypot({0}, {1})"}, is_wide=True),
    _of_c("sin"),
    _of_c("cos"),
    _of_c("tan", "tangent_of"),
    _of_c("sinh", is_wide=True),
    _of_c("cosh"),
    _of_c("tanh"),
    _renamed("asin", np.arcsin),
    _renamed("acos", np.arccos),
    _renamed("atan", np.arctan),
    _renamed("atan2", np.arctan2, is_wide=True),
    Function("asinh", 1, {"f": "area_sine({0})"}, np.arcsinh),
    Function("acosh", 1, {"f": "area_cosine({0})"}, np.arccosh),
    Function("atanh", 1, {"f": "area_tangent({0})"}, np.arctanh),
    of_ufunc("copysign", {"f": "copysign({0}, {1})"}),
    of_ufunc("nextafter", {"e": "next_half({0}, {1})", "f": "nextafter({0}, {1})"}),
)
