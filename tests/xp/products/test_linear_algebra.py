"""The standard's linear algebra: vecdot, tensordot, transposes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp

EVERYWHERE = pytest.mark.parametrize("device", [0, "cpu"])


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-50, 50, shape, np.int32)


@EVERYWHERE
@pytest.mark.parametrize(
    ("left", "right", "axes"),
    [
        ((3, 4), (4, 5), 1),
        ((2, 3, 4), (3, 4, 5), 2),
        ((2, 3), (4,), 0),
        ((2, 3, 4), (4, 5, 3), ([1, 2], [2, 0])),
        ((2, 3, 4), (4, 5, 3), ([-1], [0])),
        ((2, 3), (2, 3), 2),
        ((2, 3), (5,), ((), ())),
        ((2, 0), (0, 3), 1),
        ((0, 2), (2, 3), 1),
    ],
)
def test_tensordot_is_numpys(left, right, axes, device):
    first, second = integers(*left), integers(*right, seed=1)
    found = xp.tensordot(
        xp.asarray(first, device=device), xp.asarray(second, device=device), axes=axes
    )
    expected = np.tensordot(first, second, axes)
    assert found.shape == expected.shape
    assert found.numpy().tolist() == expected.tolist()


@EVERYWHERE
@pytest.mark.parametrize(
    ("left", "right", "axis"),
    [
        ((5,), (5,), -1),
        ((3, 300), (3, 300), -1),
        ((3, 1, 4), (2, 4), -1),
        ((3, 5, 4), (5, 1), -2),
        ((0, 3), (3,), -1),
        ((3, 0), (3, 0), -1),
    ],
)
def test_vecdot_is_the_sum_of_products(left, right, axis, device):
    first, second = integers(*left), integers(*right, seed=1)
    found = xp.vecdot(
        xp.asarray(first, device=device), xp.asarray(second, device=device), axis=axis
    )
    expected = (first * second).sum(axis, dtype=np.int32)
    assert found.shape == expected.shape
    assert found.dtype == xp.int32
    assert found.numpy().tolist() == expected.tolist()


@EVERYWHERE
def test_transposes_are_views(device):
    host = integers(2, 3, 4)
    x = xp.asarray(host, device=device)
    for found in (x.mT, xp.matrix_transpose(x)):
        assert found.ptr == x.ptr
        assert found.numpy().tolist() == host.swapaxes(-1, -2).tolist()
    assert xp.matmul(x.mT, x).numpy().tolist() == (host.swapaxes(-1, -2) @ host).tolist()


X, Y, ONE = xp.ones((2, 3)), xp.ones((4, 5)), xp.ones(())
BOOLS, INTS = xp.ones((3, 3), dtype=xp.bool), xp.ones((3, 3), dtype=xp.int32)

WRONG = [
    (lambda: X @ Y, ValueError, r"\(2, 3\) and \(4, 5\)"),
    (lambda: X @ xp.ones(4), ValueError, r"\(2, 3\) and \(4,\)"),
    (lambda: xp.ones((2, 3, 4)) @ xp.ones((3, 4, 4)), ValueError, r"\(2, 3, 4\) and \(3, 4, 4\)"),
    (lambda: X @ ONE, ValueError, r"\(2, 3\) and \(\).*1 dimension"),
    (lambda: BOOLS @ BOOLS, TypeError, r"matmul takes numbers, not bool"),
    (lambda: X @ INTS, TypeError, r"float32 and int32.*astype"),
    (lambda: X @ 2, TypeError, r"unsupported operand"),
    (lambda: 2 @ X, TypeError, r"unsupported operand"),
    (lambda: X @ np.ones((3, 2)), TypeError, r"xp\.asarray"),
    (lambda: np.ones((3, 2)) @ X, TypeError, r"xp\.asarray"),
    (lambda: xp.matmul(X, 2), TypeError, r"matmul takes arrays"),
    (lambda: X @ xp.ones((3, 2), device="cpu"), ValueError, r"cpu.*to_device"),
    (lambda: xp.broadcast_to(X, (1 << 19, 1 << 19, 2, 3)) @ X.T, MemoryError, r"in parts"),
    (lambda: xp.vecdot(X, Y), ValueError, r"\(2, 3\) and \(4, 5\).*axis -1"),
    (lambda: xp.vecdot(X, X, axis=0), IndexError, r"counted from the last"),
    (lambda: xp.vecdot(X, xp.ones((3, 3))), ValueError, r"\(2, 3\) and \(3, 3\)"),
    (lambda: xp.vecdot(BOOLS, BOOLS), TypeError, r"vecdot takes numbers"),
    (lambda: xp.tensordot(X, Y, axes=1), ValueError, r"\(2, 3\) and \(4, 5\)"),
    (lambda: xp.tensordot(X, Y, axes=3), ValueError, r"\(2, 3\) and \(4, 5\) over 3"),
    (lambda: xp.tensordot(X, Y, axes=-1), ValueError, r"over -1"),
    (lambda: xp.tensordot(X, Y, axes=([0], [0, 1])), ValueError, r"equally many axes"),
    (lambda: xp.tensordot(X, Y, axes=([0, 0], [0, 1])), ValueError, r"twice"),
    (lambda: xp.tensordot(X, Y, axes=([2], [0])), IndexError, r"axis 2"),
    (lambda: xp.tensordot(X, INTS, axes=0), TypeError, r"float32 and int32"),
    (lambda: xp.ones(3).mT, ValueError, r"2 or more dimensions"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_does_not_fit_is_refused_before_anything_is_pushed(number):
    call, error, says = WRONG[number]
    with pytest.raises(error, match=says):
        call()


def test_nothing_of_a_refused_product_is_pushed():
    """The operands have no common dtype, and tensordot would first copy a transpose."""
    turned, other = xp.ones((2, 3, 4)), xp.ones((4, 2, 3), dtype=xp.int32)
    large = xp.broadcast_to(xp.ones((1, 2)), (1 << 21, 2))
    before = cs.engine().push(lambda stream: None, device=0).number
    for call in (
        lambda: xp.tensordot(turned, other, axes=([2, 0], [0, 1])),
        lambda: xp.tensordot(turned, xp.float32, axes=1),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(MemoryError, match="in parts"):
        xp.tensordot(large, large, axes=([1], [1]))
    assert cs.engine().push(lambda stream: None, device=0).number == before + 1
