"""`out=` of products and reductions: the value is what it is without it, whatever overlaps."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.array.products import operation

EVERYWHERE = pytest.mark.parametrize("device", [0, "cpu"])
HOST = np.arange(1, 17, dtype=np.int64).reshape(4, 4)


def pushed() -> int:
    cs.waitall()
    return cs.engine().statistics().ops


def laid_out() -> np.ndarray:
    """32 numbers in 4 rows, the first 16 of which are the operand."""
    memory = np.zeros((4, 8), np.int64)
    memory.reshape(-1)[:16] = HOST.reshape(-1)
    return memory


TARGETS = {
    "apart": lambda memory: memory.reshape(-1)[16:].reshape(4, 4),
    "itself": lambda memory: memory.reshape(-1)[:16].reshape(4, 4),
    "shifted": lambda memory: memory.reshape(-1)[5:21].reshape(4, 4),
    "strided": lambda memory: memory[:, ::2],
    "turned": lambda memory: memory[:, 4:].T,
}


@EVERYWHERE
@pytest.mark.parametrize("where", TARGETS)
def test_a_product_is_right_whatever_its_target_overlaps(device, where):
    memory = laid_out()
    mine = xp.asarray(memory, device=device)
    x, out = TARGETS["itself"](mine), TARGETS[where](mine)
    assert xp.matmul(x, x.T, out=out) is out
    TARGETS[where](memory)[...] = HOST @ HOST.T
    assert mine.numpy().tolist() == memory.tolist()


@EVERYWHERE
@pytest.mark.parametrize("where", ["row", "column", "backwards", "apart"])
def test_a_reduction_is_right_whatever_its_target_overlaps(device, where):
    parts = {"row": np.s_[0, :4], "column": np.s_[:, 1], "backwards": np.s_[2, 7:3:-1]}
    part = parts.get(where, np.s_[3, 4:])
    memory = laid_out()
    mine = xp.asarray(memory, device=device)
    x, out = TARGETS["itself"](mine), mine[part]
    assert xp.sum(x, axis=0, out=out) is out
    memory[part] = HOST.sum(axis=0)
    assert mine.numpy().tolist() == memory.tolist()


REDUCTIONS = "sum prod max min mean var std all any argmax argmin count_nonzero"


@pytest.mark.sampled(4)
@EVERYWHERE
@pytest.mark.parametrize("name", REDUCTIONS.split())
def test_every_reduction_writes_to_its_target(device, name):
    x = xp.asarray(HOST.astype(np.float32), device=device)
    function = getattr(xp, name)
    expected = function(x, axis=1)
    out = xp.empty_like(expected)
    assert function(x, axis=1, out=out) is out
    assert out.numpy().tolist() == expected.numpy().tolist()
    one = xp.empty((1, 1), dtype=expected.dtype, device=device)
    function(x, keepdims=True, out=one)
    assert one.numpy().tolist() == function(x, keepdims=True).numpy().tolist()


@EVERYWHERE
def test_a_sum_of_nothing_is_written_too(device):
    nothing = xp.ones((4, 0), dtype=xp.int64, device=device)
    out = xp.ones((4, 8), dtype=xp.int64, device=device)[:, ::2]
    assert xp.sum(nothing, axis=1, out=out[0]).numpy().tolist() == [0] * 4
    assert xp.matmul(nothing, nothing.T, out=out).numpy().tolist() == [[0] * 4] * 4


def test_what_is_apart_is_written_without_a_copy():
    x, out = xp.ones((4, 4)), xp.empty((4, 4))
    x.wait()
    count = pushed()
    xp.matmul(x, x, out=out)
    assert pushed() == count + 1
    assert xp.matmul(x, out, out=out).numpy().tolist() == [[16] * 4] * 4


WRONG = [
    (lambda x, out: xp.matmul(x, x, out=xp.astype(out, xp.float64)), TypeError, "gives float32"),
    (lambda x, out: xp.matmul(x, x, out=out[0]), ValueError, "gives shape"),
    (lambda x, out: xp.matmul(x, x, out=out.numpy()), TypeError, "goes into an array"),
    (lambda x, out: xp.sum(x, axis=0, out=out), ValueError, r"gives shape \(4,\)"),
    (lambda x, out: xp.argmax(x, axis=0, out=out[0]), TypeError, "gives int64"),
    (lambda x, out: xp.var(x, axis=0, out=out), ValueError, r"gives shape \(4,\)"),
    (lambda x, out: xp.std(x, out=xp.astype(out, xp.float64)), TypeError, "gives float32"),
    (lambda x, out: xp.max(x, axis=0, out=xp.broadcast_to(out[0, 0], 4)), ValueError, "share mem"),
]


@EVERYWHERE
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_target_that_does_not_fit_is_left_alone(device, number):
    call, error, says = WRONG[number]
    x, out = xp.ones((4, 4), device=device), xp.zeros((4, 4), device=device)
    with pytest.raises(error, match=says):
        call(x, out)
    assert not out.numpy().any()


@EVERYWHERE
def test_a_target_elsewhere_is_refused_before_anything_is_pushed(device):
    x = xp.ones((4, 4), device=device)
    out = xp.zeros((4, 4), device="cpu" if device == 0 else 0)
    count = pushed()
    for call in (
        lambda: xp.matmul(x, x, out=out),
        lambda: xp.sum(x, axis=0, out=out[0]),
        lambda: xp.std(x, axis=0, out=out[0]),
    ):
        with pytest.raises(ValueError, match=r"cpu.*to_device"):
            call()
    assert pushed() == count


def test_a_target_that_overlaps_is_written_wrongly_without_the_check(monkeypatch):
    """The planted bug: sums of a running product over what it has overwritten already."""

    def careless(plan, operands, out, name, frame):
        plan.into(operands, out, frame)
        return out

    monkeypatch.setattr(operation, "delivered", careless)
    with pytest.raises(AssertionError):
        test_a_product_is_right_whatever_its_target_overlaps(0, "strided")
