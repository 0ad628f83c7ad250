"""Creation of arrays: NumPy's values, the standard's defaults."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp

DTYPES = ["bool", "int8", "int64", "uint16", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["zeros", "ones"])
def test_zeros_and_ones(name, dtype):
    found = getattr(xp, name)((2, 3), dtype=dtype).numpy()
    assert found.dtype == dtype
    assert found.tolist() == getattr(np, name)((2, 3), dtype).tolist()


@pytest.mark.parametrize(
    ("value", "dtype"), [(True, xp.bool), (3, xp.int64), (1.5, xp.float32), (np.int8(3), xp.int8)]
)
def test_full_takes_the_dtype_of_its_value(value, dtype):
    for found in (xp.full((2, 2), value), xp.asarray(value), xp.full((), xp.asarray(value))):
        assert found.dtype == dtype
        assert (found.numpy() == value).all()


def test_a_fill_value_that_the_dtype_does_not_hold_is_refused():
    with pytest.raises(OverflowError, match="uint8"):
        xp.full(2, 256, dtype=xp.uint8)
    with pytest.raises(TypeError, match="Python float"):
        xp.full(2, 1.5, dtype=xp.int8)
    assert xp.full(2, 1e60, dtype=xp.float32).numpy().tolist() == [np.inf, np.inf]


def test_what_is_made_like_an_array_has_its_shape_dtype_and_device():
    x = cs.array(np.arange(6, dtype=np.int16).reshape(2, 3)).T
    for made, value in [(xp.zeros_like(x), 0), (xp.ones_like(x), 1), (xp.full_like(x, 7), 7)]:
        assert (made.shape, made.dtype, made.device) == (x.shape, x.dtype, x.device)
        assert (made.numpy() == value).all()
    assert xp.empty_like(x, dtype=xp.float32).dtype == xp.float32


_WHOLE = st.integers(-50, 50)


@given(_WHOLE, _WHOLE, st.integers(-7, 7).filter(bool))
def test_arange_of_integers_is_numpys(start, stop, step):
    assert xp.arange(start, stop, step).numpy().tolist() == np.arange(start, stop, step).tolist()


@given(_WHOLE, _WHOLE, st.sampled_from([0.5, -0.25, 1.5, 0.1]))
def test_arange_of_floats_is_numpys_in_float64_rounded_once(start, stop, step):
    found, expected = xp.arange(start, stop, step).numpy(), np.arange(start, stop, step)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)


def test_arange_in_a_dtype_is_computed_in_it():
    for dtype in DTYPES[1:]:
        expected = np.arange(2, 40, 3, dtype=dtype)
        assert xp.arange(2, 40, 3, dtype=dtype).numpy().tolist() == expected.tolist()
    assert xp.arange(3).dtype == xp.int64


@given(st.floats(-9, 9), st.floats(-9, 9), st.integers(0, 20), st.booleans())
def test_linspace_in_float64_is_numpys_to_the_bit(start, stop, num, endpoint):
    found = xp.linspace(start, stop, num, endpoint=endpoint, dtype=xp.float64).numpy()
    expected = np.linspace(start, stop, num, endpoint=endpoint)
    np.testing.assert_allclose(found, expected, rtol=1e-15, atol=1e-15)
    assert not num or found[0] == start
    assert num < 2 or not endpoint or found[-1] == stop


@given(st.integers(0, 6), st.integers(0, 6), st.integers(-7, 7))
def test_eye_and_triangles_are_numpys(rows, columns, k):
    assert xp.eye(rows, columns, k=k).numpy().tolist() == np.eye(rows, columns, k).tolist()
    host = np.arange(2 * rows * columns).reshape(2, rows, columns)
    x = cs.array(host)
    assert xp.tril(x, k=k).numpy().tolist() == np.tril(host, k).tolist()
    assert xp.triu(x, k=k).numpy().tolist() == np.triu(host, k).tolist()


def test_meshgrid_is_numpys():
    hosts = [np.arange(n) + 10 * n for n in (2, 3, 4)]
    mine = [cs.array(each) for each in hosts]
    for count in (1, 2, 3):
        for indexing in ("xy", "ij"):
            found = xp.meshgrid(*mine[:count], indexing=indexing)
            expected = np.meshgrid(*hosts[:count], indexing=indexing)
            for each, one in zip(found, expected, strict=True):
                assert each.numpy().tolist() == one.tolist()


def test_asarray_gives_an_array_back_unless_a_copy_is_needed():
    x = xp.ones(3)
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True) is not x
    assert xp.asarray(x, dtype=xp.float64).dtype == xp.float64
    assert xp.asarray([[1, 2], [3, 4]]).dtype == xp.int64
    assert xp.asarray([0.5, 1]).dtype == xp.float32
    assert xp.asarray(np.ones(2)).dtype == xp.float64
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(x, dtype=xp.int8, copy=False)


def test_memory_of_another_array_is_taken_by_dlpack():
    x = xp.arange(4)
    y = xp.from_dlpack(x)
    y += 1
    assert x.numpy().tolist() == [1, 2, 3, 4]


def test_making_never_waits(monkeypatch):
    monkeypatch.setattr(cs.Op, "wait", None)
    made = [xp.zeros(3), xp.ones(3), xp.arange(3), xp.linspace(0, 1, 3), xp.eye(3), xp.asarray([1])]
    assert len(made) == 6
