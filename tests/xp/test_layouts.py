"""Operators on views of any layout: lengths 0 and 1, broadcast, with gaps, reversed, transposed."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays.layouts import SHAPES, Laid, laid
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.elementwise import overlap
from cudasync.array.elementwise import plan as plans
from cudasync.array.expressions import layout as layouts
from cudasync.array.expressions.kernel import class_of

PAIRS = SHAPES.flatmap(lambda shape: st.tuples(laid(shape), laid(shape)))


EVERYWHERE = pytest.mark.parametrize("device", [0, "cpu"])


def added(pair, device=0):
    """The sum of two arrays in these layouts, by NumPy and by us."""
    bases = [each.base(np.int32, seed) for seed, each in enumerate(pair)]
    hosts = [each.of(base) for each, base in zip(pair, bases, strict=True)]
    ours = [xp.asarray(base, device=device) for base in bases]
    mine = [each.of(base) for each, base in zip(pair, ours, strict=True)]
    return hosts[0] + hosts[1], (mine[0] + mine[1]).numpy()


@EVERYWHERE
@given(pair=PAIRS)
def test_operands_of_any_layout_give_what_numpy_gives(pair, device):
    expected, found = added(pair, device)
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


@EVERYWHERE
@given(pair=SHAPES.flatmap(lambda shape: st.tuples(laid(shape, broadcasts=False), laid(shape))))
def test_a_result_goes_into_a_view_of_any_layout_and_nowhere_else(pair, device):
    target, operand = pair
    base, other = target.base(np.int32, 1), operand.base(np.int32, 2)
    mine = xp.asarray(base, device=device)
    view = target.of(mine)
    view += operand.of(xp.asarray(other, device=device))
    expected = target.of(base)
    expected += operand.of(other)
    assert mine.numpy().tolist() == base.tolist()


OVERLAPPING = [
    (slice(1, None), slice(None, -1)),
    (slice(None, -1), slice(1, None)),
    (slice(None), slice(None, None, -1)),
    (slice(None, None, 2), slice(1, None, 2)),
    (slice(None, 30), slice(None, 60, 2)),
    (slice(None, 60, 2), slice(30, 60)),
    (slice(None), slice(None)),
    (slice(30, 60), slice(5, 6)),
]


def in_place_on_itself(target, source, device=0):
    """`x[target] += x[source]`, by NumPy and by us."""
    host = np.arange(60, dtype=np.int32) ** 2
    x = xp.asarray(host, device=device)
    host[target] += host[source]
    part = x[target]
    part += x[source]
    return host, x.numpy()


@EVERYWHERE
@pytest.mark.parametrize(("target", "source"), OVERLAPPING)
def test_in_place_on_overlapping_views_is_as_if_nothing_overlapped(target, source, device):
    expected, found = in_place_on_itself(target, source, device)
    assert found.tolist() == expected.tolist()


def test_an_overlap_that_is_overlooked_is_found(monkeypatch):
    """Neighbours are read after their write: the software GPU runs one thread a command."""
    monkeypatch.setattr(overlap, "is_apart", lambda *_: True)
    wrong = [pair for pair in OVERLAPPING if not np.array_equal(*in_place_on_itself(*pair))]
    assert wrong


@pytest.mark.parametrize("axes", [("gaps", "inner"), ("back with gaps", "one")])
def test_in_place_on_nothing_does_nothing(axes):
    lies = Laid((2, 0), axes, (1, 0), 0)
    view = lies.of(cs.array(lies.base(np.int32, 0)))[:, :0]
    view += 1
    assert view.shape == (2, 0)


def test_out_may_be_one_of_the_operands():
    x, y = xp.arange(100), xp.arange(100)
    assert xp.multiply(x, y, out=y) is y
    assert y.numpy().tolist() == [n * n for n in range(100)]


def planted_collapse(shape, strides):
    """The planted bug: it joins axes without a check that one continues the other."""
    found = layouts.collapsed(shape, strides)
    if len(found.lengths) != 2:
        return found
    joined = (found.lengths[0] * found.lengths[1],)
    return layouts.Layout(joined, tuple(each[1:] for each in found.strides), found.first)


def test_axes_that_are_joined_wrongly_are_found(monkeypatch):
    monkeypatch.setattr(plans, "collapsed", planted_collapse)
    pair = [Laid((3, 5), ("inner", "inner"), (0, 1), 0), Laid((3, 5), ("whole",) * 2, (0, 1), 0)]
    expected, found = added(pair)
    assert found.tolist() != expected.tolist()


@pytest.mark.parametrize(
    ("shape", "strides", "lengths", "by_operand"),
    [
        ((3, 4), [(4, 1), (4, 1)], (12,), ((1,), (1,))),
        ((3, 4), [(1, 3), (1, 3)], (12,), ((1,), (1,))),
        ((3, 4), [(0, 1), (4, 1)], (3, 4), ((0, 1), (4, 1))),
        ((3, 1, 4), [(4, 9, 1), (4, 7, 1)], (12,), ((1,), (1,))),
        ((2, 3, 4), [(12, 0, 0), (12, 4, 1)], (2, 12), ((12, 0), (12, 1))),
        ((4,), [(-1,), (-1,)], (4,), ((1,), (1,))),
        ((4,), [(-1,), (1,)], (4,), ((-1,), (1,))),
        ((), [(), ()], (), ((), ())),
    ],
)
def test_axes_are_sorted_turned_and_joined(shape, strides, lengths, by_operand):
    found = layouts.collapsed(shape, strides)
    assert found.lengths == lengths
    assert found.strides == by_operand


def test_more_elements_than_32_bits_count_take_wide_indices():
    near = layouts.collapsed((1 << 30,), [(1,), (1,)])
    far = layouts.collapsed((1 << 20, 4), [(1 << 12, 1), (4, 1)])
    assert not class_of(near).is_wide
    assert class_of(far).is_wide


@given(SHAPES.flatmap(laid), SHAPES)
def test_a_reshape_is_a_view_exactly_where_numpy_has_one(one, shape):
    base = one.base(np.int32, 0)
    host = one.of(base)
    if host.size != np.prod(shape, dtype=int):
        shape = (-1,) if host.size else (0, 3)
    mine = one.of(cs.array(base))
    found = xp.reshape(mine, shape)
    assert found.numpy().tolist() == host.reshape(shape).tolist()
    # NumPy returns a scalar for an array without dimensions.
    if host.size and isinstance(host, np.ndarray):
        assert (found.ptr == mine.ptr) == np.shares_memory(host, host.reshape(shape))
