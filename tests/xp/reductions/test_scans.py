"""Running sums and products of any layout, on a device and the CPU, compared with NumPy."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.arrays.layouts import laid
from helpers.arrays.sample_values import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.scans import operation, plan

# Shapes on both sides of one part, and of a part of parts.
CASES = [((5,), 0), ((300,), 0), ((20_000,), 0), ((3, 300), 1), ((300, 40), 0), ((40, 33), 0)]
EMPTY = [((0,), 0), ((0, 3), 0), ((3, 0), 1), ((0, 3), 1), ((3, 0), 0)]
IS_PLAIN = os.environ.get("HYPOTHESIS_PROFILE", "plain") == "plain"


def numpys(name, host, axis, dtype=None, include_initial=False):
    made = getattr(np, name)(host, axis=axis, dtype=dtype)
    if not include_initial:
        return made
    shape = [1 if i == axis else n for i, n in enumerate(host.shape)]
    return np.concatenate([np.full(shape, name == "cumprod", made.dtype), made], axis)


def agree(name, host, x, axis, **more):
    found = getattr(xp, name)(x, axis=axis, **more).numpy()
    theirs = {"cumulative_sum": "cumsum", "cumulative_prod": "cumprod"}[name]
    return same_bits(found, numpys(theirs, host, axis, **more))


def values(shape, dtype=np.int32):
    return np.random.default_rng(2).integers(-5, 6, shape).astype(dtype)


@pytest.mark.parametrize("device", [0, "cpu"])
def test_a_running_sum_is_numpys(device):
    for shape, axis in [*CASES, *EMPTY]:
        host = values(shape)
        x = xp.asarray(host, device=device)
        assert agree("cumulative_sum", host, x, axis), (shape, axis)
        assert agree("cumulative_sum", host, x, axis, include_initial=True), (shape, axis)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "uint64", "float32", "float64"])
def test_another_dtype_is_accumulated_as_numpy_does(dtype):
    host = values((3, 300)).astype(dtype)
    for device in (0, "cpu"):
        x = xp.asarray(host, device=device)
        assert agree("cumulative_prod", host, x, 1)
        assert agree("cumulative_sum", host, x, 1, dtype=np.dtype(np.float64))


def test_float16_is_accumulated_in_float32():
    host = np.full(3000, 1.25, np.float16)
    expected = host.cumsum(dtype=np.float32).astype(np.float16)
    for device in (0, "cpu"):
        found = xp.cumulative_sum(xp.asarray(host, device=device))
        assert same_bits(found.numpy(), expected)


LAID = st.sampled_from([(300,), (5, 33), (33, 5)]).flatmap(lambda shape: laid(shape))


@settings(max_examples=8 if IS_PLAIN else 200)
@given(LAID, st.data())
def test_a_view_of_any_layout_accumulates_to_numpys_bits(one, data):
    base = one.base(np.int32, 3)
    host, x = one.of(base), one.of(cs.array(base))
    axis = data.draw(st.integers(0, host.ndim - 1)) if host.ndim else None
    if axis is not None:
        assert agree("cumulative_sum", host, x, axis)


def test_the_error_of_a_running_sum_is_within_its_bound():
    """An element is added to the sum of its part, then of the parts before, then of their parts."""
    host = np.random.default_rng(4).normal(size=20_000).astype(np.float32)
    found = xp.cumulative_sum(xp.asarray(host)).numpy()
    exact = host.astype(np.float64).cumsum()
    slack = 3 * 129 * np.finfo(np.float32).eps / 2 * np.abs(host).cumsum(dtype=np.float64)
    assert (np.abs(found - exact) <= slack).all()


def test_a_carry_that_is_forgotten_is_found(monkeypatch):
    right = plan.source
    monkeypatch.setattr(plan, "source", lambda kind: right(kind).replace("part - 1", "part"))
    monkeypatch.setattr(operation, "_plans", {})
    host = values((300,))
    assert not agree("cumulative_sum", host, cs.array(host), 0)


def test_only_one_dimension_may_leave_out_its_axis():
    with pytest.raises(ValueError, match="give axis="):
        xp.cumulative_sum(xp.ones((2, 3)))
    with pytest.raises(IndexError, match="axis 1"):
        xp.cumulative_sum(xp.ones(3), axis=1)
    with pytest.raises(TypeError, match="cumulative_prod takes arrays"):
        xp.cumulative_prod([1])
