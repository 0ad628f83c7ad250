"""The default dtypes of numbers are the same in every function that makes arrays."""

from __future__ import annotations

import array as python_array

import numpy as np
import pytest

import cudasync as cs

OF_PYTHON = [
    (1.0, np.float32), ([1.0, 2.0], np.float32), (((1.0,), [2]), np.float32), ([], np.float32),
    ([[], []], np.float32), ([1, 2.0, True], np.float32), ([float("nan")], np.float32),
    (3, np.int64), ([1, 2], np.int64), ([1, True], np.int64), (range(3), np.int64),
    (True, np.bool_), ([[True], [False]], np.bool_),
    (1j, np.complex64), ([1.0, 2j], np.complex64),
]  # fmt: skip
WITH_A_DTYPE = [
    np.float64(1), [np.float64(1), 2.0], [1.0, np.float32(2)], [np.float16(1)], np.arange(3.0),
    [np.arange(2.0), [1.0, 2.0]], np.array(1.0), np.ones(2, np.complex128), np.ones(2, np.float16),
    python_array.array("d", [1.0]), [1, np.int32(2)], [np.complex128(1), 1.0], [np.bool_(1)],
]  # fmt: skip


@pytest.mark.parametrize(("data", "dtype"), OF_PYTHON, ids=repr)
def test_numbers_of_python_get_the_dtype_that_the_makers_of_arrays_have(data, dtype):
    made = cs.array(data)
    assert made.dtype == dtype
    assert made.shape == np.shape(data)
    np.testing.assert_array_equal(made.numpy(), np.asarray(data, dtype))


@pytest.mark.parametrize("data", WITH_A_DTYPE, ids=repr)
def test_what_has_a_dtype_keeps_numpys_rule(data):
    assert cs.array(data).dtype == np.asarray(data).dtype


def test_all_makers_agree_on_floats():
    made = [cs.array([1.0, 2.0]), cs.zeros(2), cs.empty(2), cs.zeros_like(cs.array(1.0))]
    assert {each.dtype for each in made} == {np.dtype(np.float32)}


def test_a_dtype_that_is_named_is_taken():
    assert cs.array([1.0], np.float64).dtype == np.float64
    assert cs.array([1], np.float32).dtype == np.float32
    assert cs.array(0.1, np.float64).numpy() == 0.1


def test_the_numbers_are_rounded_once():
    assert cs.array([0.1]).numpy()[0] == np.float32(0.1)
