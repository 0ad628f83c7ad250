"""Dtypes: the standard's promotion tables, weak scalars, casts and limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers.arrays.sample_values import numbers_of

import cudasync as cs
from cudasync import xp
from cudasync.array.dtypes.supported import ALL

PAIRS = list(itertools.product(ALL, ALL))


def is_in_the_tables(first, second):
    """The standard's rule: one kind, or integers except uint64 with a signed type."""
    kinds = {first.kind, second.kind}
    if len(kinds) == 1:
        return True
    return kinds == {"i", "u"} and np.dtype(np.uint64) not in (first, second)


def test_two_dtypes_promote_as_in_numpy_or_not_at_all():
    for first, second in PAIRS:
        if is_in_the_tables(first, second):
            assert xp.result_type(first, second) == np.promote_types(first, second)
        else:
            with pytest.raises(TypeError, match=r"no common dtype.*astype"):
                xp.result_type(first, second)


@pytest.mark.parametrize(("scalar", "kinds"), [(True, "b"), (1, "iuf"), (1.5, "f")])
def test_a_python_scalar_takes_the_dtype_that_it_meets(scalar, kinds):
    for dtype in ALL:
        if dtype.kind in kinds:
            assert xp.result_type(dtype, scalar) == dtype
        else:
            with pytest.raises(TypeError, match="do not go together"):
                xp.result_type(scalar, dtype)


def test_an_array_an_operand_and_a_numpy_scalar_count_with_their_dtype():
    x = xp.ones(2, dtype=xp.float32)
    assert xp.result_type(x, xp.float64) == xp.float64
    assert (x + np.float64(1)).dtype == xp.float64
    assert (x + np.float16(1)).dtype == xp.float32
    assert (x + 1.0).dtype == xp.float32


def test_result_type_needs_an_array_or_a_dtype():
    with pytest.raises(TypeError, match="at least one"):
        xp.result_type(1, 2.0)
    with pytest.raises(NotImplementedError, match="complex"):
        xp.result_type(xp.float32, 1j)


def test_can_cast_says_what_numpy_says():
    for first, second in PAIRS:
        assert xp.can_cast(first, second) == np.can_cast(first, second)
    assert xp.can_cast(xp.ones(1, dtype=xp.int8), xp.int16)


def test_isdtype_knows_the_words_of_the_standard():
    words = {
        "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
        "real floating": "f", "complex floating": "", "numeric": "iuf",
    }  # fmt: skip
    for dtype, (word, kinds) in itertools.product(ALL, words.items()):
        assert xp.isdtype(dtype, word) == (dtype.kind in kinds)
    assert xp.isdtype(xp.int8, ("bool", xp.int8))
    assert not xp.isdtype(xp.int8, xp.int16)
    with pytest.raises(ValueError, match="'float'"):
        xp.isdtype(xp.int8, "float")


def test_limits_are_python_numbers():
    for dtype in ALL:
        if dtype.kind == "f":
            mine, theirs = xp.finfo(dtype), np.finfo(dtype)
            names = ("bits", "eps", "max", "min", "smallest_normal")
            assert type(mine.eps) is float
        elif dtype.kind in "iu":
            mine, theirs = xp.iinfo(xp.ones(1, dtype=dtype)), np.iinfo(dtype)
            names = ("bits", "max", "min")
            assert type(mine.max) is int
        else:
            continue
        assert [getattr(mine, each) for each in names] == [getattr(theirs, each) for each in names]
        assert mine.dtype == dtype
    with pytest.raises(TypeError, match="iinfo"):
        xp.finfo(xp.int8)
    with pytest.raises(TypeError, match="finfo"):
        xp.iinfo(xp.float32)


@pytest.mark.parametrize("target", ["float32", "int16", "bool", "uint8", "float16"])
def test_a_cast_is_numpys(target):
    """Integers wrap, and floats are truncated. Values out of an integer dtype are left open."""
    for source in ALL:
        if source.name not in ("float32", "int16", "bool", "int64") and target != "float32":
            continue
        host = numbers_of(source, count=50)
        if source.kind == "f" and np.dtype(target).kind in "iu":
            limits = np.iinfo(target)
            host = host[(host > limits.min) & (host < limits.max)]
        with np.errstate(all="ignore"):
            expected = host.astype(target)
        found = xp.astype(cs.array(host), target).numpy()
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_astype_returns_the_array_itself_only_where_it_may():
    x = xp.ones(3)
    assert xp.astype(x, xp.float32, copy=False) is x
    assert xp.astype(x, xp.float32) is not x
    assert xp.astype(x, xp.int8, copy=False).dtype == xp.int8


@pytest.mark.parametrize("dtype", ["complex64", "U3", "datetime64[s]", "O"])
def test_other_dtypes_are_refused_by_name(dtype):
    wrong = NotImplementedError if dtype == "complex64" else TypeError
    with pytest.raises(wrong, match=r"cannot compute|complex numbers"):
        xp.zeros(3, dtype=dtype)
