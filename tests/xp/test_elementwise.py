"""Every function of the table, on a device, compared with NumPy: values, dtype, special cases."""

from __future__ import annotations

import sys
from functools import cache, partial

import numpy as np
import pytest
from helpers.arrays.sample_values import numbers_of, pairs_of, same_bits, ulps_apart

import cudasync as cs
from cudasync import xp
from cudasync.array.dtypes.supported import ALL, FLOAT16, FLOAT32, FLOAT64
from cudasync.array.elementwise import expression_builder
from cudasync.array.elementwise.operation import Operation
from cudasync.array.expressions.tree import Input, apply
from cudasync.array.functions.function import Function
from cudasync.array.functions.table import FUNCTIONS
from cudasync.array.functions.transcendental import TRANSCENDENTAL

# Functions that IEEE does not fix to the bit: powers without roots, and library functions.
INEXACT = {each.name for each in TRANSCENDENTAL} - {"copysign", "nextafter"} | {"pow"}
# The sum of two logarithms may cancel: its error is that of the larger operand.
CANCELS = {"logaddexp"}
MOST_ULPS = 2

CASES = [
    (name, dtype) for name, each in FUNCTIONS.items() for dtype in ALL if dtype.kind in each.takes
]
COMMON = {"float32", "int32", "bool"}
QUICK = [(name, dtype) for name, dtype in CASES if dtype.name in COMMON]
OTHERS = [(name, dtype) for name, dtype in CASES if dtype.name not in COMMON]


def operands_for(function, dtype):
    if function.arity == 1:
        return (numbers_of(dtype),)
    first, second = pairs_of(dtype)
    if function.name == "pow" and dtype.kind == "i":
        # NumPy refuses integers to negative powers.
        second = np.abs(second % 16).astype(dtype)
    if function.selects:
        return (numbers_of(np.dtype(bool), count=len(first)), first, second)
    return first, second


@cache
def operation_of(function):
    return Operation(function.name, partial(expression_builder.call, function))


def computed(function, operands, device=0):
    arrays = tuple(xp.asarray(each, device=device) for each in operands)
    return operation_of(function)(arrays, sys._getframe()).numpy()


def expected_of(function, operands, dtype):
    """NumPy's result. Inexact functions are computed in the next larger float, and rounded once."""
    with np.errstate(all="ignore"):
        if function.name in INEXACT and dtype.kind == "f":
            wider = np.longdouble if dtype == FLOAT64 else np.float64
            return function.host(*(each.astype(wider) for each in operands)).astype(dtype)
        return np.asarray(function.host(*operands))


def disagreement(function, dtype):
    """The fault in the device's result, or None."""
    operands = operands_for(function, dtype)
    found, expected = computed(function, operands), expected_of(function, operands, dtype)
    if function.name in CANCELS:
        with np.errstate(all="ignore"):
            scale = np.maximum(np.abs(operands[0]), np.abs(operands[1])) + 1
            apart = np.abs(found.astype(np.float64) - expected) / np.spacing(scale.astype(dtype))
        apart = np.where(
            found == expected, 0, np.where(np.isnan(found) & np.isnan(expected), 0, apart)
        )
    elif function.name in INEXACT and dtype.kind == "f":
        apart = ulps_apart(found, expected)
    elif function.name in ("maximum", "minimum"):
        # Either of two zeros may be the larger.
        return (
            None
            if same_bits(found + np.zeros_like(found), expected + np.zeros_like(expected))
            else "bits"
        )
    else:
        return None if same_bits(found, expected) else "bits"
    worst = int(np.argmax(apart))
    if apart[worst] <= MOST_ULPS:
        return None
    return f"{apart[worst]} ulp at {[each[worst] for each in operands]}: {found[worst]}"


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("name", "dtype"), QUICK, ids=lambda each: str(each))
def test_a_function_gives_what_numpy_gives(name, dtype):
    assert disagreement(FUNCTIONS[name], dtype) is None


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "dtype"), OTHERS, ids=lambda each: str(each))
def test_a_function_of_a_rarer_dtype_gives_what_numpy_gives(name, dtype):
    assert disagreement(FUNCTIONS[name], dtype) is None


def test_every_function_on_the_cpu_is_numpys():
    for name, dtype in CASES:
        function = FUNCTIONS[name]
        operands = operands_for(function, dtype)
        with np.errstate(all="ignore"):
            expected = np.asarray(function.host(*operands))
        assert same_bits(computed(function, operands, "cpu"), expected), (name, dtype)


@pytest.mark.parametrize(
    ("texts", "host", "dtype"),
    [
        ({"f": "{0} + {1} + ({T})1e-6 * {0}"}, np.add, FLOAT32),
        ({"iu": "{0} / {1}"}, np.floor_divide, np.dtype(np.int32)),
        ({"f": "fmod({0}, {1})"}, np.remainder, FLOAT64),
        ({"f": "rint({0} + {1})"}, np.add, FLOAT16),
    ],
    ids=["a few ulp", "division by zero", "sign of the remainder", "rounding"],
)
def test_a_wrong_text_is_found(texts, host, dtype):
    assert disagreement(Function("wrong", 2, texts, host), dtype) is not None


def test_more_than_two_ulp_of_a_function_that_is_not_exact_are_found():
    wrong = Function("exp", 1, {"f": "exp({0}) * ({T})(1 + 6e-7)"}, np.exp)
    assert "ulp" in disagreement(wrong, FLOAT32)


def test_a_product_and_a_sum_in_one_kernel_are_rounded_twice():
    """Two NumPy calls do the same. With one rounding the difference would not be 0."""
    square = apply(FUNCTIONS["multiply"], Input(0, FLOAT32), Input(0, FLOAT32))
    tree = apply(FUNCTIONS["subtract"], square, Input(1, FLOAT32))
    fused = Operation("fused", lambda operands: tree)
    host = np.float32([1 + 2**-12, 1 / 3, 0.1])
    found = fused((cs.array(host), cs.array(host * host)), sys._getframe())
    assert found.numpy().tolist() == [0, 0, 0]
