"""Reductions of any dtype, shape, axes and layout, on a device and the CPU, compared with NumPy."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from helpers.arrays.layouts import laid
from helpers.arrays.sample_values import numbers_of, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.dtypes.supported import ALL, FLOAT16, FLOAT32
from cudasync.array.reductions import kernel, operation, plan, stage_launch, stages
from cudasync.array.reductions.stages import MOST_ROUNDINGS
from cudasync.testing import HostLatch

EXACT = ("sum", "prod", "max", "min", "any", "all", "count_nonzero", "argmax", "argmin")
ROUNDED = ("sum", "mean", "var", "std")
PLACES = ("argmax", "argmin")
# Lengths on both sides of the bounds of a reduction: 8 at once, a warp, a block, a part.
SHAPES = [(), (7,), (40, 33), (33, 40), (2100,), (3, 0), (0, 3), (2, 5, 33)]
QUICK = {"float32", "int32", "bool"}
# Each other case compiles a kernel of its own.
IS_PLAIN = os.environ.get("HYPOTHESIS_PROFILE", "plain") == "plain"


def takes(name, dtype):
    if name in ("mean", "var", "std"):
        return dtype.kind == "f"
    return dtype.kind != "b" or name not in ("max", "min", *PLACES)


def axes_of(shape, name):
    """None, each axis, and pairs of axes if the shape has three."""
    single = [None, *range(-1, len(shape) - 1)]
    return single if name in PLACES or len(shape) < 3 else [*single, (0, 2), (1, -1), ()]


def expected_of(name, host, axis, **more):
    """NumPy's result; ValueError where NumPy raises it."""
    if host.dtype == FLOAT16 and name in ("sum", "prod"):
        return np.asarray(getattr(np, name)(host, axis=axis, dtype=np.float32, **more)).astype("f2")
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(getattr(np, name)(host, axis=axis, **more))
    except ValueError:
        return ValueError


def agree(name, host, x, axis, **more):
    """True if `x`, our array with the values of `host`, reduces to NumPy's bits."""
    expected = expected_of(name, host, axis, **more)
    if expected is ValueError:
        with pytest.raises(ValueError, match=f"{name} needs at least one element"):
            getattr(xp, name)(x, axis=axis, **more)
        return True
    found = getattr(xp, name)(x, axis=axis, **more).numpy()
    if host.dtype.kind == "f" and name in ("max", "min"):
        # Either of two zeros may be the larger.
        found, expected = found + np.zeros_like(found), expected + np.zeros_like(expected)
    return same_bits(found, expected)


def values_for(name, dtype, shape, seed=0):
    """Values from a dtype's whole range, with special ones. Their sums and products are exact."""
    count = int(np.prod(shape))
    if name in ("sum", "prod") and dtype.kind == "f":
        rng = np.random.default_rng(seed)
        few = [1, -1, 2, 0.5] if name == "prod" else [0, 1, -1, 2]
        most = 8 if name == "prod" else 100
        values = np.ones(count) if name == "prod" else np.zeros(count)
        values[:most] = rng.choice(few, min(count, most))
        return rng.permutation(values).reshape(shape).astype(dtype)
    drawn = numbers_of(dtype, seed)
    return np.resize(np.random.default_rng(seed).permutation(drawn), shape)


CASES = [(name, dtype) for name in EXACT for dtype in ALL if takes(name, dtype)]


def check_exact(name, dtype, shapes, device):
    for shape in shapes:
        host = values_for(name, dtype, shape)
        for axis in axes_of(shape, name):
            assert agree(name, host, xp.asarray(host, device=device), axis), (shape, axis)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_a_reduction_on_the_cpu_gives_numpys_bits(name, dtype):
    check_exact(name, dtype, SHAPES, "cpu")


@pytest.mark.parametrize("name", ["sum", "argmax"] if IS_PLAIN else EXACT)
def test_a_reduction_gives_numpys_bits(name):
    check_exact(name, np.dtype(np.int32), SHAPES[:3] if IS_PLAIN else SHAPES, 0)


@pytest.mark.sampled(48)
@pytest.mark.parametrize(
    ("name", "dtype"), [each for each in CASES if each[1].name != "int32"], ids=str
)
def test_a_reduction_of_another_dtype_gives_numpys_bits(name, dtype):
    check_exact(name, dtype, [(33, 40)], 0)


@pytest.mark.parametrize("device", [0, "cpu"])
@pytest.mark.parametrize("name", [*EXACT, "mean", "var", "std"])
def test_no_elements_reduce_to_what_the_standard_says(name, device):
    for shape in [(3, 0), (0, 3), (0,), (0, 0)]:
        host = np.zeros(shape, np.float32)
        x = xp.asarray(host, device=device)
        for axis in axes_of(shape, name):
            assert agree(name, host, x, axis), (shape, axis)


def test_reduced_axes_stay_where_asked():
    host = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    for device in (0, "cpu"):
        x = xp.asarray(host, device=device)
        for axis in (None, 1, (0, -1)):
            assert agree("sum", host, x, axis, keepdims=True)
        assert agree("argmax", host, x, None, keepdims=True)
        assert agree("argmax", host, x, 1, keepdims=True)
        assert xp.std(xp.astype(x, xp.float32), axis=(1, 2), keepdims=True).shape == (2, 1, 1)


LAID = st.sampled_from([(33,), (5, 33), (33, 5), (2, 3, 33)]).flatmap(
    lambda shape: laid(shape, broadcasts=True)
)


@settings(max_examples=4 if IS_PLAIN else 300)
@given(LAID, st.sampled_from(["sum", "argmin"]), st.data())
def test_a_view_of_any_layout_reduces_to_numpys_bits(one, name, data):
    base = one.base(np.int32, 3)
    host, x = one.of(base), one.of(cs.array(base))
    axis = data.draw(st.sampled_from(axes_of(host.shape, name)))
    assert agree(name, host, x, axis)


def bound_of(name, host, x, axis, correction=0):
    """The allowed error of a result, and the result in float64.

    The bound covers the rounding of all stages, of the summands, and of the few functions at the
    end.
    """
    wide = host.astype(np.float64)
    unit = np.finfo(FLOAT32 if host.dtype == FLOAT16 else host.dtype).eps / 2
    passes = [len(each.stages) for each in operation._plans.values() if hasattr(each, "stages")]
    roundings = MOST_ROUNDINGS * max(passes)
    size = np.abs(wide)
    exact = getattr(np, name)
    if name in ("var", "std"):
        exact_value = exact(wide, axis=axis, ddof=correction)
        mean = np.abs(wide).mean(axis)
        variance = np.var(wide, axis=axis, ddof=correction)
        slack = 4 * roundings * unit * (variance + mean * np.sqrt(variance) * unit * roundings)
        slack = slack + (2 * roundings * unit * mean) ** 2
        if name == "std":
            slack = slack / np.sqrt(np.maximum(variance, 1e-30))
    else:
        exact_value = exact(wide, axis=axis)
        slack = 1.01 * roundings * unit * (size.sum(axis) if name == "sum" else size.mean(axis))
    if host.dtype == FLOAT16:
        slack = slack + np.abs(exact_value) * np.finfo(FLOAT16).eps
    return exact_value, slack + np.abs(exact_value) * 4 * unit


def is_within_bounds(name, host, axis, **more):
    x = xp.asarray(host)
    found = getattr(xp, name)(x, axis=axis, **more).numpy()
    assert found.dtype == host.dtype
    exact, slack = bound_of(name, host, x, axis, **more)
    return bool((np.abs(found.astype(np.float64) - exact) <= slack).all())


def hard_sum(dtype, count):
    """Growing numbers of both signs, which make a running sum lose bits."""
    rng = np.random.default_rng(5)
    return (rng.normal(size=count) * np.exp(rng.uniform(-3, 3, count)) + 1).astype(dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ROUNDED)
def test_the_error_of_a_reduction_is_within_its_bound(name):
    host = hard_sum(np.float32, 40_000)
    assert is_within_bounds(name, host, None)
    assert is_within_bounds(name, host.reshape(1000, 40), 0)
    assert is_within_bounds(name, host.reshape(40, 1000), 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_error_in_another_dtype_is_within_its_bound(dtype):
    for name in ROUNDED if not IS_PLAIN else ("std",):
        assert is_within_bounds(name, (hard_sum(dtype, 4000) / 100).astype(dtype), None)


def test_a_running_sum_is_out_of_bounds(monkeypatch):
    """The planted bug: one thread adds up all elements in turn."""

    def down(kind, count):
        return [
            "const unsigned output = 0, part = blockIdx.x; if (threadIdx.x) return;",
            "const auto element = [&](const unsigned r) { return element_of(output, r); };",
            "State state = start();",
            "for (unsigned at = 0; at < length; at++) state = combine(state, element(at));",
            "result[part] = part ? start() : state;",
        ]

    monkeypatch.setattr(kernel, "_across", down)
    monkeypatch.setattr(operation, "_plans", {})
    count = 1 << 18
    host = np.full(count, 0.1, np.float32)
    assert not is_within_bounds("sum", host, None)


def planted_stages(axes):
    """The planted bug: only the first part is reduced."""
    first = stages.stages_of(axes)[0]
    return [stages.Stage(first.axes, first.kind, first.chunk, parts=1)]


SHORT_ROWS = [(1024, 64), (1027, 33), (1031, 256)]


def agree_in_rows(shapes=SHORT_ROWS):
    """True if many short rows, several to a warp, reduce to NumPy's bits."""
    found = []
    for name, dtype in (("sum", np.int32), ("argmax", np.float32), ("argmin", np.float64)):
        for shape in shapes:
            host = values_for(name, np.dtype(dtype), shape)
            if name == "argmax":
                # Equal values, and NaN, in rows whose neighbours have neither.
                host[3::8, 20::7], host[5::8, 31] = np.inf, np.nan
            found.append(agree(name, host, cs.array(host), 1))
    reducing = [each for each in operation._plans.values() if hasattr(each, "stages")]
    assert all(each.stages[0].kind.rows == stages.ROWS for each in reducing)
    return all(found)


def test_short_rows_are_reduced_several_to_a_warp(monkeypatch):
    monkeypatch.setattr(operation, "_plans", {})
    assert agree_in_rows()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "change",
    [
        ("min(first + j, outputs - 1)", "first"),
        ("kept = lane & 8 ? high : low", "kept = low"),
        ("if (at + lane < length) take", "if (false) take"),
    ],
    ids=["another's row", "another's half", "a rest left out"],
)
def test_a_row_that_is_mixed_up_is_found(change, monkeypatch):
    right = stage_launch.source
    monkeypatch.setattr(stage_launch, "source", lambda *job: right(*job).replace(*change))
    monkeypatch.setattr(operation, "_plans", {})
    assert not agree_in_rows(SHORT_ROWS[1:2])


def test_a_part_that_is_left_out_is_found(monkeypatch):
    host = np.ones(16384 + 100, np.int32)
    assert agree("sum", host, cs.array(host), None)
    monkeypatch.setattr(plan, "stages_of", planted_stages)
    monkeypatch.setattr(operation, "_plans", {})
    assert not agree("sum", host, cs.array(host), None)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("argmax", ("b.value == b.value", "true")),
        ("argmax", (" & (a.place < b.place)", "")),
        ("max", ("a != a", "false")),
    ],
    ids=["a later NaN", "a later equal", "no NaN"],
)
def test_a_wrong_choice_is_found(name, change, monkeypatch):
    # The second value belongs to an earlier thread than the first.
    host = np.zeros(3000, np.float32)
    host[[50, 300]] = 2 if change[1] == "" else np.nan
    assert agree(name, host, cs.array(host), None)
    right = stage_launch.source
    monkeypatch.setattr(stage_launch, "source", lambda *job: right(*job).replace(*change))
    monkeypatch.setattr(operation, "_plans", {})
    assert not agree(name, host, cs.array(host), None)


def test_sums_and_products_take_the_dtype_that_is_asked_for():
    x = xp.asarray(np.full(300, 200, np.uint8))
    assert xp.sum(x).dtype == xp.uint64
    assert xp.sum(xp.astype(x, xp.int8)).dtype == xp.int64
    assert xp.sum(xp.astype(x, xp.bool)).numpy() == 300
    assert xp.sum(x, dtype=xp.uint8).numpy() == np.full(300, 200, np.uint8).sum(dtype=np.uint8)
    found = xp.sum(x, dtype=xp.float64)
    assert found.dtype == xp.float64
    assert float(found) == 60000


def test_the_correction_is_taken_off_what_is_divided_by():
    host = np.float32([1, 2, 4, 9])
    for device in (0, "cpu"):
        x = xp.asarray(host, device=device)
        assert float(xp.var(x, correction=1)) == pytest.approx(host.var(ddof=1))
        assert float(xp.std(x, correction=1.5)) == pytest.approx(host.std(ddof=1.5))
        assert float(xp.var(x, correction=4)) == np.inf
        assert float(xp.var(x, correction=9)) == np.inf


def test_what_can_not_be_reduced_is_refused_before_anything_is_pushed():
    x = xp.ones((2, 3), dtype=xp.int32)
    for name in ("mean", "var", "std"):
        with pytest.raises(TypeError, match=rf"{name} takes floats, not int32.*xp\.float32"):
            getattr(xp, name)(x)
    with pytest.raises(TypeError, match="max takes"):
        xp.max(xp.astype(x, xp.bool))
    with pytest.raises(IndexError, match="axis 2"):
        xp.sum(x, axis=2)
    with pytest.raises(ValueError, match="named twice"):
        xp.sum(x, axis=(0, -2))
    with pytest.raises(TypeError, match=r"sum takes arrays.*asarray"):
        xp.sum([1, 2])
    with pytest.raises(TypeError, match="cannot compute with"):
        xp.sum(x, dtype="U3")


def test_a_reduction_returns_before_its_operand_is_there():
    x, latch = xp.ones(300, device="cpu"), HostLatch()
    cs.engine().push(latch.wait, writes=[x])
    here = xp.var(x * 2)
    there = xp.argmax(xp.cumulative_sum(x.to_device(0)))
    order = xp.sort(x.to_device(0), descending=True)
    assert not latch.is_released
    latch.release()
    assert float(here) == 0
    assert int(there) == 299
    assert order.numpy().tolist() == [1] * 300


def test_reductions_work_on_after_a_reset_of_their_device():
    device = cs.Device(cs.device_count() - 1)
    for _ in range(2):
        x = xp.ones(300, device=device)
        found = [xp.sum(x), xp.cumulative_sum(x)[-1], xp.sort(x)[0], xp.take(x, xp.argmax(x)[None])]
        assert [float(each) for each in found] == [300, 300, 1, 1]
        del x, found
        cs.waitall()
        device.reset()


def test_the_places_of_all_axes_count_in_c_order_whatever_the_layout():
    host = np.zeros((4, 5, 6), np.float32)
    host[1, 2, 3] = host[3, 0, 0] = 1
    turned = xp.permute_dims(xp.asarray(host), (2, 1, 0))
    assert int(xp.argmax(turned)) == int(np.argmax(host.transpose(2, 1, 0)))
