"""`out=` of products and reductions: the same value as without it, for any overlap."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.array.products import operation
from cudasync.array.scans import operation as scans

EVERYWHERE = pytest.mark.parametrize("device", [0, "cpu"])
HOST = np.arange(1, 17, dtype=np.int64).reshape(4, 4)


def pushed() -> int:
    cs.waitall()
    return cs.engine().statistics().ops


def laid_out() -> np.ndarray:
    """32 numbers in 4 rows. The first 16 numbers are the operand."""
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


@pytest.mark.sampled(7)
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


OTHERS = {
    "vecdot": (lambda x, m, out: m.vecdot(x, x[0], **out), np.s_[0, :4], np.s_[:, 1], np.s_[3, 4:]),
    "tensordot": (lambda x, m, out: m.tensordot(x, x, axes=1, **out), *(TARGETS.values())),
    "cumulative_sum": (
        lambda x, m, out: m.cumulative_sum(x, axis=1, **out), *(TARGETS.values())
    ),
    "cumulative_prod": (
        lambda x, m, out: m.cumulative_prod(x, axis=0, **out), *(TARGETS.values())
    ),
}  # fmt: skip


@EVERYWHERE
@pytest.mark.parametrize("name", OTHERS)
def test_others_are_right_whatever_their_target_overlaps(device, name):
    call, *targets = OTHERS[name]
    for where in targets:
        pick = where if callable(where) else lambda memory, where=where: memory[where]
        memory = laid_out()
        mine = xp.asarray(memory, device=device)
        out = pick(mine)
        assert call(TARGETS["itself"](mine), xp, {"out": out}) is out
        pick(memory)[...] = call(HOST, np if hasattr(np, name) else OF_OLD, {})
        assert mine.numpy().tolist() == memory.tolist()


class OF_OLD:
    """Functions that NumPy has since 2.0 and 2.1."""

    cumulative_sum, cumulative_prod = np.cumsum, np.cumprod

    @staticmethod
    def vecdot(x, y):
        return (x * y).sum(axis=-1)


@EVERYWHERE
def test_scans_of_nothing_and_products_without_axes_are_written_too(device):
    out = xp.ones((4, 1), dtype=xp.int64, device=device)
    nothing = xp.ones((4, 0), dtype=xp.int64, device=device)
    xp.cumulative_sum(nothing, axis=1, include_initial=True, out=out)
    assert out.numpy().tolist() == [[0]] * 4
    one, x = xp.zeros((), dtype=xp.int64, device=device), xp.asarray(HOST, device=device)
    assert int(xp.tensordot(x, x, axes=2, out=one)) == (HOST * HOST).sum()
    assert int(xp.vecdot(x[0], x[1], out=one)) == HOST[0] @ HOST[1]


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
    xp.tensordot(x, x, axes=1, out=out)
    xp.vecdot(x, x, out=out[0])
    xp.cumulative_sum(x, axis=1, out=out)
    assert pushed() == count + 4
    xp.matmul(x, x, out=out)
    assert xp.matmul(x, out, out=out).numpy().tolist() == [[16] * 4] * 4


WRONG = [
    (lambda x, out: xp.matmul(x, x, out=xp.astype(out, xp.float64)), TypeError, "gives float32"),
    (lambda x, out: xp.matmul(x, x, out=out[0]), ValueError, "gives shape"),
    (lambda x, out: xp.matmul(x, x, out=out.numpy()), TypeError, "must be an array"),
    (lambda x, out: xp.sum(x, axis=0, out=out), ValueError, r"gives shape \(4,\)"),
    (lambda x, out: xp.argmax(x, axis=0, out=out[0]), TypeError, "gives int64"),
    (lambda x, out: xp.var(x, axis=0, out=out), ValueError, r"gives shape \(4,\)"),
    (lambda x, out: xp.std(x, out=xp.astype(out, xp.float64)), TypeError, "gives float32"),
    (lambda x, out: xp.vecdot(x, x, out=out), ValueError, r"vecdot gives shape \(4,\)"),
    (lambda x, out: xp.tensordot(x, x, axes=2, out=out), ValueError, r"tensordot gives shape \(\)"),
    (lambda x, out: xp.tensordot(x, x, 1, out=out), TypeError, "positional"),
    (lambda x, out: xp.cumulative_sum(x[0], out=out), ValueError, r"gives shape \(4,\)"),
    (lambda x, out: xp.cumulative_prod(x[0], out=xp.astype(out, xp.int32)), TypeError, "float32"),
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
        lambda: xp.vecdot(x, x, out=out[0]),
        lambda: xp.tensordot(x, x.T, axes=1, out=out),
        lambda: xp.cumulative_sum(x, axis=0, out=out),
    ):
        with pytest.raises(ValueError, match=r"cpu.*to_device"):
            call()
    assert pushed() == count


def test_a_target_that_overlaps_is_written_wrongly_without_the_check(monkeypatch):
    """The planted bug: a running product reads elements that it has overwritten already."""

    def careless(plan, operands, out, name, frame):
        plan.into(operands, out, frame)
        return out

    monkeypatch.setattr(operation, "delivered", careless)
    with pytest.raises(AssertionError):
        test_a_product_is_right_whatever_its_target_overlaps(0, "strided")
    monkeypatch.setattr(scans, "delivered", careless)
    with pytest.raises(AssertionError):
        test_others_are_right_whatever_their_target_overlaps(0, "cumulative_sum")
