"""Indexing by arrays of integers and of bool, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from cudasync import xp
from cudasync.array.picking import advanced

SHAPES = of_numpy.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
SLICES = [slice(None), slice(1, None), slice(None, None, -1)]
DEVICES = st.sampled_from([0, "cpu"])


@st.composite
def cases(draw):
    """An array, and an index with at least one array in it."""
    shape = draw(SHAPES)
    values = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    if draw(st.booleans()):
        values = values[..., ::-1].T
        shape = values.shape
    places = st.sampled_from([(), (1,), (3,), (2, 1), (2, 3), (0,)])
    items, axis, has_array = [], 0, False
    while axis < len(shape):
        kind = draw(st.sampled_from(["slice", "integer", "array", "array", "mask", "none"]))
        length = shape[axis]
        if kind == "mask":
            count = draw(st.integers(1, len(shape) - axis))
            part = shape[axis : axis + count]
            items.append(draw(of_numpy.arrays(bool, part)))
            axis += count
            has_array = True
        elif kind == "array" and length:
            at = st.integers(-length, length - 1)
            items.append(draw(of_numpy.arrays(np.int64, draw(places), elements=at)))
            axis += 1
            has_array = True
        elif kind == "integer" and length:
            items.append(draw(st.integers(-length, length - 1)))
            axis += 1
        elif kind == "none" and len(items) < 4:
            items.append(None)
        else:
            items.append(
                draw(st.sampled_from([slice(None), slice(1, None), slice(None, None, -1)]))
            )
            axis += 1
    if not has_array:
        items.append(...) if draw(st.booleans()) else None
    return values, tuple(items)


def answers(values, index, device):
    """NumPy's answer, or IndexError; ours."""
    x = xp.asarray(values, device=device)
    mine = tuple(
        xp.asarray(each, device=device) if isinstance(each, np.ndarray) else each for each in index
    )
    try:
        expected = values[index]
    except IndexError:
        with pytest.raises(IndexError):
            x[mine]
        return None, None
    return expected, x[mine].numpy()


@given(cases(), DEVICES)
def test_what_an_index_names_is_numpys(case, device):
    expected, found = answers(*case, device)
    if expected is not None:
        assert found.shape == expected.shape
        assert found.tolist() == expected.tolist()


def test_arrays_that_are_put_together_wrongly_are_found(monkeypatch):
    monkeypatch.setattr(advanced, "_where_they_go", lambda items: (0, True))

    @settings(max_examples=200, deadline=None, database=None, phases=[Phase.generate])
    @given(cases())
    def search(case):
        expected, found = answers(*case, "cpu")
        assert expected is None or (
            found.shape == expected.shape and found.tolist() == expected.tolist()
        )

    with pytest.raises(BaseException, match=r"assert|shape|reshape"):
        search()


@st.composite
def fillings(draw):
    shape = draw(SHAPES)
    count = draw(st.integers(1, len(shape)))
    mask = draw(of_numpy.arrays(bool, shape[:count]))
    rest = shape[count:]
    kind = draw(st.sampled_from(["number", "each", "row", "one"]))
    many = int(mask.sum())
    value = {
        "number": 7,
        "each": -1 - np.arange(many * int(np.prod(rest)), dtype=np.int32).reshape(many, *rest),
        "row": np.full(rest, 9, np.int32),
        "one": np.full((1, *rest), 5, np.int32),
    }[kind]
    return shape, mask, value


@given(fillings(), DEVICES)
def test_what_is_written_where_a_mask_is_true_is_numpys(case, device):
    shape, mask, value = case
    expected = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    x = xp.asarray(expected, device=device)
    expected[mask] = value
    x[xp.asarray(mask, device=device)] = (
        xp.asarray(value, device=device) if isinstance(value, np.ndarray) else value
    )
    assert x.numpy().tolist() == expected.tolist()


def test_mistakes_are_said_and_change_nothing():
    x = xp.reshape(xp.arange(6, dtype=xp.int32), (2, 3))
    with pytest.raises(IndexError, match="not of float32"):
        x[xp.asarray([0.0])]
    with pytest.raises(IndexError, match="has shape"):
        x[xp.asarray([True, False, True])]
    with pytest.raises(IndexError, match="3 indices for an array of 2"):
        x[0, 0, xp.asarray([0])]
    with pytest.raises(IndexError, match="broadcast"):
        x[xp.asarray([0, 1]), xp.asarray([0, 1, 2])]
    with pytest.raises(IndexError, match="beyond axis 1"):
        x[xp.asarray([0]), 3]
    with pytest.raises(ValueError, match="move one by"):
        x[xp.asarray([0], device="cpu")]
    with pytest.raises(TypeError, match="only an array of bool"):
        x[xp.asarray([0])] = 1
    with pytest.raises(ValueError, match="6 elements are assigned to"):
        x[x >= 0] = xp.arange(4, dtype=xp.int32)
    with pytest.raises(TypeError, match="can not be assigned"):
        x[x >= 0] = xp.ones(6)
    assert x.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_place_beyond_the_axis_takes_the_nearest_element():
    x = xp.reshape(xp.arange(6, dtype=xp.int32), (2, 3))
    assert x[xp.asarray([5, -9])].numpy().tolist() == [[3, 4, 5], [0, 1, 2]]
    rows, columns = xp.asarray([9, 0]), xp.asarray([-7, 8])
    assert x[rows, columns].numpy().tolist() == [3, 2]
    # Host data will do as well.
    assert x[[1, 0], np.array([2, 2])].numpy().tolist() == [5, 2]
