"""Sorting, searching, taking and sets, on a device and the CPU, compared with NumPy."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.arrays.layouts import laid
from helpers.arrays.sample_values import numbers_of, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.advanced_indexing import kernel as picking_kernel
from cudasync.array.dtypes.supported import ALL
from cudasync.array.sorting import operation as sorting

IS_PLAIN = os.environ.get("HYPOTHESIS_PROFILE", "plain") == "plain"
DEVICES = pytest.mark.parametrize("device", [0, "cpu"])
# Lengths on both sides of one run, and of two merges.
SHAPES = [((1,), 0), ((8,), 0), ((9,), 0), ((3, 100), 1), ((33, 4), 0), ((0,), 0), ((2, 0), 1)]


def numpys(host, axis, is_descending):
    """The stable order. NaN is the largest, so it comes first in a descending order."""
    if not is_descending:
        return np.argsort(host, axis=axis, kind="stable")
    turned = np.argsort(np.flip(host, axis), axis=axis, kind="stable")
    return host.shape[axis] - 1 - np.flip(turned, axis)


def agree(host, x, axis, is_descending):
    order = numpys(host, axis, is_descending)
    places = xp.argsort(x, axis=axis, descending=is_descending).numpy()
    values = xp.sort(x, axis=axis, descending=is_descending).numpy()
    return same_bits(places, order) and same_bits(values, np.take_along_axis(host, order, axis))


def few(shape, dtype=np.int32, seed=0):
    """Random numbers with many equal ones."""
    return np.random.default_rng(seed).integers(0, 7, shape).astype(dtype)


@DEVICES
def test_a_sort_is_numpys_and_stable(device):
    for shape, axis in SHAPES:
        host = few(shape)
        for is_descending in (False, True):
            assert agree(host, xp.asarray(host, device=device), axis, is_descending), shape


@DEVICES
@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", [each for each in ALL if each.name != "int32"], ids=str)
def test_special_values_of_a_dtype_are_sorted_as_numpy_does(dtype, device):
    host = np.random.default_rng(3).permutation(np.resize(numbers_of(dtype, count=50), 150))
    assert agree(host, xp.asarray(host, device=device), 0, dtype.kind == "u")


@settings(max_examples=8 if IS_PLAIN else 200)
@given(st.sampled_from([(33,), (5, 33), (33, 5)]).flatmap(laid), st.data())
def test_a_view_of_any_layout_is_sorted(one, data):
    base = one.base(np.int32, 3)
    host, x = one.of(base), one.of(cs.array(base))
    if host.ndim:
        assert agree(host, x, data.draw(st.integers(0, host.ndim - 1)), False)


@pytest.mark.parametrize(
    "change",
    [
        ("comes_before(entry.value, run[to - 1].value)", "run[to - 1].value >= entry.value"),
        ("!comes_before(entry.value, row[half].value)", "row[half].value < entry.value"),
    ],
    ids=["equal ones change places in a run", "equal ones meet in a merge"],
)
def test_a_wrong_sort_is_found(change, monkeypatch):
    right = sorting.source
    monkeypatch.setattr(sorting, "source", lambda kind: right(kind).replace(*change))
    monkeypatch.setattr(sorting, "_known", sorting.Known())
    host = few((20,))
    assert not agree(host, cs.array(host), 0, False)


@DEVICES
def test_a_search_finds_where_numpy_finds(device):
    row = np.sort(numbers_of(np.dtype(np.float32), count=20))
    values = np.concatenate([row, np.float32([0.25, 7e9, -7e9, np.nan])]).reshape(3, -1)
    mine, wanted = xp.asarray(row, device=device), xp.asarray(values, device=device)
    for side in ("left", "right"):
        found = xp.searchsorted(mine, wanted, side=side).numpy()
        assert same_bits(found, np.searchsorted(row, values, side))
    order = np.random.default_rng(0).permutation(len(row))
    back = np.argsort(order)
    found = xp.searchsorted(
        xp.asarray(row[order], device=device), wanted, sorter=xp.asarray(back, device=device)
    )
    assert same_bits(found.numpy(), np.searchsorted(row, values))
    none = xp.searchsorted(mine[:0], wanted)
    assert not none.numpy().any()


def test_a_search_on_the_wrong_side_is_found(monkeypatch):
    right = picking_kernel.search
    monkeypatch.setattr(
        picking_kernel, "search", lambda dtype, *, is_right: right(dtype, is_right=not is_right)
    )
    row = few((20,)).astype(np.float32)
    row.sort()
    found = xp.searchsorted(cs.array(row), cs.array(row)).numpy()
    assert found.tolist() != np.searchsorted(row, row).tolist()


@DEVICES
def test_elements_are_taken_by_indices(device):
    host = few((4, 5, 6), np.int16)
    x = xp.asarray(host, device=device)
    places = np.int8([3, 0, -1, 3])
    at = xp.asarray(places, device=device)
    for axis in (0, 1, -1):
        assert same_bits(xp.take(x, at, axis=axis).numpy(), np.take(host, places, axis))
    turned = xp.permute_dims(x, (2, 0, 1))
    assert same_bits(
        xp.take(turned, at, axis=1).numpy(), np.take(host.transpose(2, 0, 1), places, 1)
    )
    beyond = xp.take(x, xp.asarray([7, -9], device=device), axis=0).numpy()
    assert same_bits(beyond, host[[3, 0]])
    order = np.argsort(host, axis=1)
    found = xp.take_along_axis(x, xp.asarray(order, device=device), axis=1)
    assert same_bits(found.numpy(), np.take_along_axis(host, order, 1))
    one = xp.asarray(order[:1, :2], device=device)
    assert same_bits(
        xp.take_along_axis(x, one, axis=1).numpy(), np.take_along_axis(host, order[:1, :2], 1)
    )


@DEVICES
def test_what_is_not_zero_is_found_in_order(device):
    for shape in [(7,), (300,), (4, 5, 6), (0,), (3, 0)]:
        host = (few(shape) % 3).astype(np.float32)
        found = xp.nonzero(xp.asarray(host, device=device))
        assert len(found) == host.ndim
        for mine, theirs in zip(found, np.nonzero(host), strict=True):
            assert same_bits(mine.numpy(), theirs)


@DEVICES
def test_each_value_is_found_once(device):
    for host in (few((300,)), few((4, 5), np.float32), few((0, 3)), np.float32([1, np.nan, 1])):
        x = xp.asarray(host, device=device)
        values, first, inverse, counts = np.unique(
            host, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
        )
        found = xp.unique_all(x)
        expected = (values, first, inverse.reshape(host.shape), counts)
        for mine, theirs in zip(found, expected, strict=True):
            assert same_bits(mine.numpy(), theirs)
        assert same_bits(xp.unique_values(x).numpy(), values)
        assert same_bits(xp.unique_counts(x).counts.numpy(), counts)
        assert same_bits(xp.unique_inverse(x).inverse_indices.numpy(), expected[2])


def test_what_makes_no_sense_is_refused_before_anything_is_pushed():
    x = xp.ones((2, 3))
    with pytest.raises(IndexError, match="axis 2"):
        xp.sort(x, axis=2)
    with pytest.raises(ValueError, match="give axis="):
        xp.take(x, xp.asarray([0]))
    with pytest.raises(TypeError, match="integer indices"):
        xp.take(x, x[0], axis=0)
    with pytest.raises(IndexError, match="no elements to take"):
        xp.take(x[:0], xp.asarray([0]), axis=0)
    with pytest.raises(ValueError, match="one device"):
        xp.searchsorted(xp.ones(2), xp.ones(2, device="cpu"))
    with pytest.raises(ValueError, match="'middle'"):
        xp.searchsorted(x[0], x, side="middle")
    with pytest.raises(ValueError, match="1 or more dimensions"):
        xp.nonzero(x[0, 0])
