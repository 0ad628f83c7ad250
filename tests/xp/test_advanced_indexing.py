"""Reads and writes by indices that contain arrays, on a device and the CPU, compared with NumPy."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.arrays.sample_values import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.advanced_indexing import kernel as picking_kernel
from cudasync.array.advanced_indexing import row_assignment
from cudasync.array.array import ReadOnlyArray
from cudasync.array.steps.step_cache import Known
from cudasync.testing import HostLatch

IS_PLAIN = os.environ.get("HYPOTHESIS_PROFILE", "plain") == "plain"
DEVICES = pytest.mark.parametrize("device", [0, "cpu"])
HOST = np.arange(60, dtype=np.int32).reshape(3, 4, 5)


@st.composite
def items(draw):
    """A valid index of HOST with an array in it. All its arrays broadcast from one shape."""
    if draw(st.booleans()):
        rank = draw(st.integers(0, 3))
        first = draw(st.integers(0, 3 - rank))
        seed = draw(st.integers(0, 9))
        shape = HOST.shape[first : first + rank]
        mask = np.array(np.random.default_rng(seed).random(shape) < seed / 9)
        return (*[slice(None)] * first, mask, *draw(st.sampled_from([(), (...,), (None,)])))
    shapes = st.sampled_from([(3,), (2, 1), (2, 3), (1,), (0,) if draw(st.booleans()) else (3,)])
    found = []
    for length in HOST.shape[: draw(st.integers(1, 3))]:
        kind = draw(st.sampled_from("aaiscn"))
        if kind == "i":
            found.append(draw(st.integers(-length, length - 1)))
        elif kind == "s":
            found.append(slice(*draw(st.sampled_from([(None,), (1, None), (None, None, -1)]))))
        elif kind == "n":
            found += [None, slice(None)]
        else:
            seed = draw(st.integers(0, 9))
            shape = draw(shapes)
            found.append(np.random.default_rng(seed).integers(-length, length, shape))
    if not any(isinstance(each, np.ndarray) for each in found):
        found[-1] = np.array([1, 0, 1])
    return tuple(found)


def on(device, index):
    """The index with our arrays in place of NumPy's."""
    given = index if isinstance(index, tuple) else (index,)
    return tuple(
        xp.asarray(each, device=device) if isinstance(each, np.ndarray) else each for each in given
    )


def is_numpys(device, index, values=None):
    """True if the same index of the same array reads and writes the same as in NumPy."""
    try:
        expected = HOST[index]
    except IndexError:
        with pytest.raises(IndexError):
            xp.asarray(HOST, device=device)[on(device, index)]
        return True
    x, host = xp.asarray(HOST, device=device), HOST.copy()
    index = on(device, index)
    theirs = tuple(each.numpy() if hasattr(each, "ptr") else each for each in index)
    read = same_bits(x[index].numpy(), expected)
    values = -1 - np.arange(expected.size, dtype=np.int32).reshape(expected.shape)
    x[index], host[theirs] = xp.asarray(values, device=device), values
    written = same_bits(x.numpy(), host)
    x[index], host[theirs] = 7, 7
    return read and written and same_bits(x.numpy(), host)


@DEVICES
@settings(max_examples=6 if IS_PLAIN else 200)
@given(items())
def test_an_index_with_arrays_means_what_it_does_in_numpy(device, index):
    assert is_numpys(device, index)


# The size lets threads of several blocks write to one element.
MANY = np.random.default_rng(1).integers(0, 3, 2000)


@DEVICES
def test_of_equal_indices_the_last_is_written(device):
    x = xp.asarray(np.zeros((2, 3), np.int32), device=device)
    values = np.arange(2 * MANY.size, dtype=np.int32).reshape(2, -1)
    x[:, xp.asarray(MANY, device=device)] = xp.asarray(values, device=device)
    host = np.zeros((2, 3), np.int32)
    host[:, MANY] = values
    assert same_bits(x.numpy(), host)


def test_a_kernel_that_writes_the_first_of_equal_indices_is_found(monkeypatch):
    right = picking_kernel.write

    def wrong(item_size, *, is_ordered):
        text = right(item_size, is_ordered=is_ordered)
        assert "(k + 1 < count && at[k + 1] == at[k])" in text
        return text.replace("k + 1 < count && at[k + 1] == at[k]", "k && at[k - 1] == at[k]")

    monkeypatch.setattr(picking_kernel, "write", wrong)
    monkeypatch.setattr(row_assignment, "_known", Known())
    assert not is_numpys(0, (np.array([1, 0, 1]),))


@DEVICES
def test_an_index_beyond_the_axis_touches_no_other_memory(device):
    """Memory around the array stays unchanged, and a read returns elements of the array."""
    whole = xp.asarray(np.arange(30, dtype=np.int32), device=device)
    x = whole[10:20]
    far = xp.asarray([-11, 10, 1 << 62, -(1 << 63), 3], device=device)
    assert x[far].numpy().tolist() == [10, 19, 19, 10, 13]
    x[far] = xp.asarray(np.arange(100, 105, dtype=np.int32), device=device)
    expected = np.arange(30, dtype=np.int32)
    expected[13] = 104
    assert same_bits(whole.numpy(), expected)
    square = whole[:9].reshape(3, 3)
    square[far, xp.asarray(1, device=device)[None]] = -1
    square[xp.asarray([0], device=device), xp.asarray([3], device=device)] = -1
    assert same_bits(whole.numpy(), expected)


@DEVICES
def test_an_array_indexes_and_writes_itself_as_if_it_was_read_before(device):
    host = np.array([3, 1, 0, 2, 2, 0])
    x = xp.asarray(host, device=device)
    x[x] = x
    x[::-1][xp.asarray([0, 1, 2], device=device)] = x[:3]
    host[host.copy()] = host.copy()
    host[::-1][[0, 1, 2]] = host[:3].copy()
    assert same_bits(x.numpy(), host)
    mask = xp.asarray(np.array([True, False, True]), device=device)
    mask[mask] = False
    assert not mask.numpy().any()


@DEVICES
def test_writing_by_arrays_fits_views_dtypes_and_broadcasts(device):
    host = np.zeros((4, 6), np.float32)
    x = xp.asarray(host, device=device)
    rows, keep = np.array([2, 0]), np.arange(6) % 2 == 0
    x[:, ::2][xp.asarray(rows, device=device)] = np.float64([1, 2, 3])
    host[:, ::2][rows] = [1, 2, 3]
    x.mT[xp.asarray(keep, device=device)] = xp.asarray(host[3:, :4] + 5, device=device)
    host.T[keep] = host[3:, :4] + 5
    # Lists and NumPy arrays are indices, too.
    x[[3, 1]], host[[3, 1]] = 9, 9
    x[np.array([], np.int8)] = 4
    assert same_bits(x.numpy(), host)
    assert x[[]].shape == (0, 6)


@DEVICES
def test_only_the_count_of_a_mask_is_waited_for(device):
    x, latch = xp.zeros(5, device=device), HostLatch()
    mask = xp.asarray([True, False, True, False, True], device=device)
    at = xp.asarray([1, 1], device=device)
    cs.engine().push(latch.wait, writes=[x])
    picked = x[mask]
    x[at] = 3
    cs.engine().push(latch.wait, writes=[mask])
    x[mask] = 2
    late = x[at]
    assert not latch.is_released
    latch.release()
    assert picked.numpy().tolist() == [0] * 3
    assert x.numpy().tolist() == [2, 3, 2, 0, 2]
    assert late.numpy().tolist() == [3, 3]


def test_memory_that_is_read_only_is_read_and_not_written():
    x = xp.arange(4)
    fixed = ReadOnlyArray(x._allocation, x.ptr, x.shape, x.strides, x.dtype)
    at, mask = xp.asarray([2, 0]), x > 1
    assert fixed[at].numpy().tolist() == [2, 0]
    for index in (at, mask):
        with pytest.raises(ValueError, match="read-only"):
            fixed[index] = 1
    assert x.numpy().tolist() == [0, 1, 2, 3]


def test_what_can_be_known_is_refused_before_anything_is_pushed():
    x = xp.zeros((3, 4))
    before = x.numpy()
    for index, error, words in [
        (np.array([3]), IndexError, "index 3 is outside axis 0"),
        ((slice(None), [-5]), IndexError, "index -5 is outside axis 1"),
        (xp.asarray([0.0]), TypeError, "integers or bool"),
        (xp.asarray([True]), IndexError, "mask of shape"),
        ((xp.asarray([0]), 0, 0), IndexError, "3 indices"),
        ((xp.asarray([0, 1]), xp.asarray([0, 1, 2])), IndexError, "broadcast"),
        ((..., xp.asarray([0]), ...), IndexError, "only one"),
        (xp.asarray([0], device="cpu"), ValueError, "to_device"),
    ]:
        with pytest.raises(error, match=words):
            x[index]
        with pytest.raises(error, match=words):
            x[index] = 1.0
    with pytest.raises(IndexError, match="no index is valid"):
        x[:0][xp.asarray([0])]
    with pytest.raises(ValueError, match="share memory"):
        xp.broadcast_to(x, (2, 3, 4))[xp.asarray([0])] = 1.0
    with pytest.raises(NotImplementedError, match="complex"):
        x[xp.asarray([0])] = 1j
    with pytest.raises(ValueError, match="broadcast"):
        x[xp.asarray([0, 1])] = xp.ones(3)
    assert same_bits(x.numpy(), before)


@DEVICES
def test_elements_are_repeated_by_an_array_of_numbers(device):
    host, counts = HOST[:, :, 0], np.uint8([2, 0, 3, 1])
    x = xp.asarray(host, device=device)
    found = xp.repeat(x, xp.asarray(counts, device=device), axis=1)
    assert same_bits(found.numpy(), np.repeat(host, counts, 1))
    none = xp.repeat(x, xp.zeros(3, dtype=xp.int64, device=device), axis=0)
    assert none.shape == (0, 4)
    one = xp.repeat(x, xp.asarray([2], device=device))
    assert same_bits(one.numpy(), np.repeat(host, 2))
    with pytest.raises(ValueError, match="negative"):
        xp.repeat(x, xp.asarray([1, -1, 1], device=device), axis=0)
    with pytest.raises(ValueError, match="a number for each of 3"):
        xp.repeat(x, xp.asarray([1, 1], device=device), axis=0)


@DEVICES
def test_differences_are_numpys(device):
    x = xp.asarray(HOST, device=device)
    for axis, n in [(-1, 1), (0, 2), (1, 9), (2, 0)]:
        assert same_bits(xp.diff(x, axis=axis, n=n).numpy(), np.diff(HOST, n, axis))
    found = xp.diff(x, axis=1, prepend=x[:, :1], append=x[:, 2:])
    expected = np.diff(HOST, axis=1, prepend=HOST[:, :1], append=HOST[:, 2:])
    assert same_bits(found.numpy(), expected)
    with pytest.raises(ValueError, match="0 or more"):
        xp.diff(x, n=-1)
