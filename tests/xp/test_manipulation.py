"""Manipulation of arrays: NumPy's values, and views wherever strides can express them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays.layouts import SHAPES, laid
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp

VIEWS = SHAPES.flatmap(lambda shape: laid(shape, broadcasts=False))


def both(lies):
    """The same view of the same numbers, in NumPy and in our array."""
    base = lies.base(np.int32, 3)
    return np.asarray(lies.of(base)), lies.of(cs.array(base))


def agree(found, expected):
    assert found.shape == expected.shape
    assert found.numpy().tolist() == expected.tolist()


@given(VIEWS, st.data())
def test_what_moves_axes_is_numpys_and_a_view(lies, data):
    host, x = both(lies)
    order = data.draw(st.permutations(range(host.ndim)))
    agree(xp.permute_dims(x, tuple(order)), host.transpose(order))
    at = data.draw(st.integers(-host.ndim - 1, host.ndim))
    wide = xp.expand_dims(x, axis=at)
    agree(wide, np.expand_dims(host, at))
    agree(xp.squeeze(wide, at), host)
    assert wide.ptr == x.ptr
    if host.ndim:
        axis, to = (data.draw(st.integers(-host.ndim, host.ndim - 1)) for _ in range(2))
        agree(xp.flip(x, axis=axis), np.flip(host, axis))
        agree(xp.moveaxis(x, axis, to), np.moveaxis(host, axis, to))
        for mine, theirs in zip(xp.unstack(x, axis=axis), np.unstack(host, axis=axis), strict=True):
            agree(mine, np.asarray(theirs))
    agree(xp.flip(x), np.flip(host))


@given(VIEWS, st.data())
def test_what_copies_is_numpys(lies, data):
    host, x = both(lies)
    shift = data.draw(st.integers(-9, 9))
    agree(xp.roll(x, shift), np.roll(host, shift))
    times = data.draw(st.lists(st.integers(0, 2), max_size=3).map(tuple))
    agree(xp.tile(x, times), np.tile(host, times))
    agree(xp.repeat(x, 2), np.repeat(host, 2))
    agree(xp.concat([x, x], axis=None), np.concatenate([host, host], axis=None))
    axis = data.draw(st.integers(-host.ndim - 1, host.ndim))
    agree(xp.stack([x, x + 1], axis=axis), np.stack([host, host + 1], axis))
    if host.ndim:
        along = data.draw(st.integers(-host.ndim, host.ndim - 1))
        agree(xp.roll(x, shift, axis=along), np.roll(host, shift, along))
        agree(xp.repeat(x, 3, axis=along), np.repeat(host, 3, along))
        agree(xp.concat([x, x + 1, x], axis=along), np.concatenate([host, host + 1, host], along))


def test_several_axes_are_rolled_at_once():
    host = np.arange(24).reshape(2, 3, 4)
    x = cs.array(host)
    agree(xp.roll(x, (1, -2), axis=(0, 2)), np.roll(host, (1, -2), (0, 2)))
    agree(xp.roll(x, 1, axis=(1, 1)), np.roll(host, 1, (1, 1)))
    agree(xp.flip(x, axis=(0, -1)), np.flip(host, (0, -1)))


def test_concat_promotes():
    made = xp.concat([xp.ones(2, dtype=xp.int8), xp.ones(1, dtype=xp.uint8)])
    assert made.dtype == xp.int16
    with pytest.raises(TypeError, match="no common dtype"):
        xp.concat([xp.ones(2), xp.ones(1, dtype=xp.uint8)])


def test_arrays_are_broadcast_together_without_a_copy():
    x, y = xp.arange(3), xp.reshape(xp.arange(2), (2, 1))
    mine = xp.broadcast_arrays(x, y)
    for each, host in zip(mine, np.broadcast_arrays(x.numpy(), y.numpy()), strict=True):
        agree(each, host)
    assert mine[0].ptr == x.ptr
    with pytest.raises(ValueError, match="does not broadcast"):
        xp.broadcast_to(x, (2,))
    with pytest.raises(TypeError, match="integer numbers of repetitions"):
        xp.repeat(x, xp.ones(3))


def test_a_poisoned_part_poisons_a_concat_and_a_block_from_the_pool_no_other():
    def broken():
        raise RuntimeError("not today")

    with cs.Engine() as engine:
        good, bad = xp.ones((4, 3)), xp.ones((4, 3))
        engine.push(broken, writes=[bad])
        spoilt = xp.concat([good, bad], axis=1)
        with pytest.raises(cs.OpError):
            spoilt.numpy()
        results = [bad + 1 for _ in range(3)]
        del results
        for _ in range(3):
            assert (xp.concat([good, good], axis=1).numpy() == 1).all()
            assert (good + 1).numpy().tolist() == [[2] * 3] * 4
        engine.clear_errors()
