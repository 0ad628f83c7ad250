"""Matrix products of any dtype, shape and layout, on a device and the CPU, compared with NumPy."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.arrays.layouts import laid
from helpers.arrays.matrix_products import disagreement
from hypothesis import given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.dtypes.supported import ALL
from cudasync.array.products import kernel_choice, operation, plan, thin, tiled
from cudasync.testing import HostLatch

# Each class of layouts and dtypes compiles a kernel of its own.
IS_PLAIN = os.environ.get("HYPOTHESIS_PROFILE", "plain") == "plain"
EVERYWHERE = pytest.mark.parametrize("device", [0, "cpu"])
NUMBERS = [dtype for dtype in ALL if dtype.kind != "b"]


def values(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def wrong(left, right, device=0):
    """The fault in the product of these operands, as our arrays on a device."""
    x, y = xp.asarray(left, device=device), xp.asarray(right, device=device)
    return disagreement((x @ y).numpy(), left, right)


# Shapes on both sides of a square, and of the bounds for each form of kernel.
SHAPES = [
    ((32, 32), (32, 32)),
    ((33, 65), (65, 31)),
    ((3, 40, 33), (33, 40)),
    ((2, 1, 31, 20), (3, 20, 34)),
    ((5,), (5,)),
    ((1000,), (1000,)),
    ((300,), (300, 70)),
    ((70, 300), (300,)),
    ((4, 70, 300), (300,)),
    ((2, 3, 4, 3), (2, 1, 3, 5)),
    ((0, 4), (4, 3)),
    ((3, 0), (0, 4)),
    ((0,), (0,)),
    ((2, 0, 3), (3, 0)),
    ((0, 2, 3), (3, 2)),
    ((70000, 1, 2), (2, 1)),
]


@pytest.mark.sampled(3)
@EVERYWHERE
@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("i4")], ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_product_of_any_shape_is_numpys(shapes, dtype, device):
    left, right = (values(shape, dtype, seed) for seed, shape in enumerate(shapes))
    assert wrong(left, right, device) is None


PAIRS = [(dtype, dtype) for dtype in NUMBERS]
PAIRS += [
    (first, second)
    for first in NUMBERS
    for second in NUMBERS
    if first != second
    and (first.kind == second.kind or {first.kind, second.kind} == {"i", "u"})
    and np.result_type(first, second).kind == ("f" if first.kind == "f" else "i")
] + [(np.dtype("u1"), np.dtype("u4"))]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
@pytest.mark.parametrize("shapes", [SHAPES[1], SHAPES[9]], ids=str)
def test_dtypes_are_promoted_and_integers_wrap(shapes, dtypes):
    pairs = zip(shapes, dtypes, strict=True)
    left, right = (values(shape, dtype, seed) for seed, (shape, dtype) in enumerate(pairs))
    assert wrong(left, right) is None
    assert wrong(left, right, "cpu") is None


@pytest.mark.parametrize("dtype", ["f2", "f8", "u1", "i8"])
def test_a_dtype_has_its_own_sums(dtype):
    left, right = values((33, 40), np.dtype(dtype)), values((40, 9), np.dtype(dtype), 1)
    assert wrong(left, right) is None
    assert wrong(left, right, "cpu") is None


LENGTHS = st.sampled_from([1, 2, 5, 31, 33, 70])


@st.composite
def laid_pairs(draw):
    """Two operands with stacks that broadcast and matrices that fit, in any layout."""
    rows, depth, columns = draw(LENGTHS), draw(LENGTHS), draw(LENGTHS)
    stack = draw(st.sampled_from([(), (), (2,), (2, 3)]))
    pair = [(*stack, rows, depth), (*stack, depth, columns)]
    operands = []
    for shape in pair:
        whole = draw(laid(shape, broadcasts=False))
        # The matrices are unchanged. An axis in front may broadcast one matrix.
        axes = [draw(st.sampled_from(["one", how])) for how in whole.axes[:-2]]
        operands.append(type(whole)(shape, (*axes, *whole.axes[-2:]), whole.order, 0))
    return operands


@EVERYWHERE
@settings(max_examples=12 if IS_PLAIN else settings.default.max_examples)
@given(pair=laid_pairs(), dtype=st.sampled_from([np.dtype("f4"), np.dtype("i4")]))
def test_operands_of_any_layout_give_what_numpy_gives(pair, dtype, device):
    bases = [each.base(dtype, seed) for seed, each in enumerate(pair)]
    hosts = [each.of(base) for each, base in zip(pair, bases, strict=True)]
    mine = [
        each.of(xp.asarray(base, device=device)) for each, base in zip(pair, bases, strict=True)
    ]
    assert disagreement((mine[0] @ mine[1]).numpy(), *hosts) is None


@EVERYWHERE
@pytest.mark.parametrize("shapes", [SHAPES[1], SHAPES[7]], ids=str)
def test_special_values_meet_as_in_numpy(shapes, device):
    left, right = (values(shape, np.dtype("f4"), seed) for seed, shape in enumerate(shapes))
    left[0, 3], left[1, 0], left[2, 1], left[4, 2:4] = np.inf, np.nan, -np.inf, (np.inf, -np.inf)
    right[5], left[6, 5], left[7] = 0, np.inf, -0.0
    assert wrong(left, right, device) is None


@pytest.mark.parametrize("shapes", [SHAPES[3], SHAPES[8]], ids=str)
def test_indices_of_64_bits_reach_the_same_elements(shapes, monkeypatch):
    monkeypatch.setattr(kernel_choice, "MOST_SHORT", 100)
    monkeypatch.setattr(operation, "_plans", {})
    left, right = (values(shape, np.dtype("f4"), seed) for seed, shape in enumerate(shapes))
    x, y = cs.array(left)[..., ::-1, :], cs.array(right)[::-1]
    assert disagreement((x @ y).numpy(), left[..., ::-1, :], right[::-1]) is None


def without_rest(monkeypatch):
    """The planted bug: the depth behind the last whole square is not summed."""
    real = tiled.source
    plant = ("from < depth; from", "from + 31 < depth; from")
    monkeypatch.setattr(tiled, "source", lambda *given: real(*given).replace(*plant))


def without_pairs(monkeypatch):
    """The planted bug: the last of the threads' sums are not added."""
    real = thin.source
    monkeypatch.setattr(
        thin, "source", lambda *given: real(*given).replace("= 4; half", "= 2; half")
    )


def without_stack(monkeypatch):
    """The planted bug: each matrix of the left operand is the first one."""
    real = kernel_choice._axes

    def planted(shape, strides):
        return real(shape, [(0,) * len(shape), strides[1]])

    monkeypatch.setattr(kernel_choice, "_axes", planted)


@pytest.mark.parametrize(
    ("plant", "shapes"),
    [(without_rest, SHAPES[1]), (without_pairs, SHAPES[6]), (without_stack, SHAPES[3])],
)
def test_a_planted_bug_is_found(plant, shapes, monkeypatch):
    left, right = (values(shape, np.dtype("i4"), seed) for seed, shape in enumerate(shapes))
    assert wrong(left, right) is None
    monkeypatch.setattr(operation, "_plans", {})
    plant(monkeypatch)
    assert wrong(left, right) is not None


def test_a_sum_that_lost_a_product_is_out_of_the_bound():
    left, right = values((33, 65), np.dtype("f4")), values((65, 31), np.dtype("f4"), 1)
    lost = left[:, 1:] @ right[1:]
    assert disagreement(left @ right, left, right) is None
    assert disagreement(lost, left, right) is not None
    assert disagreement((left @ right).astype("f8"), left, right) is not None


def test_the_bits_are_the_same_each_time_and_on_every_device():
    left, right = values((2, 70, 90), np.dtype("f4")), values((90, 40), np.dtype("f4"), 1)
    found = [
        (cs.array(left, device=ordinal) @ cs.array(right, device=ordinal)).numpy().tobytes()
        for ordinal in [*range(min(3, cs.device_count())), 0, 0]
    ]
    assert len(set(found)) == 1


@EVERYWHERE
def test_a_product_returns_before_its_operands_are_there(device):
    x, latch = xp.ones((3, 3), device=device), HostLatch()
    cs.engine().push(latch.wait, writes=[x])
    z = x @ x @ x[0] + 1
    assert not latch.is_released
    latch.release()
    assert z.numpy().tolist() == [10, 10, 10]


@EVERYWHERE
def test_in_place_it_keeps_the_array(device):
    host = values((5, 5), np.dtype("i8"))
    x = xp.asarray(host, device=device)
    same = x
    x @= x.T
    assert x is same
    assert x.numpy().tolist() == (host @ host.T).tolist()
    with pytest.raises(ValueError, match="gives shape"):
        x @= x[0]
    shared, small = xp.broadcast_to(x[:1], (5, 5)), xp.astype(x, xp.int32)
    before = cs.engine().push(lambda stream: None, device=0).number
    with pytest.raises(ValueError, match="share memory"):
        shared @= x
    with pytest.raises(TypeError, match="gives int64"):
        small @= x
    assert cs.engine().push(lambda stream: None, device=0).number == before + 1


def test_a_plan_goes_on_after_a_reset(monkeypatch):
    x = xp.ones((3, 3))
    (x @ x).wait()
    made = operation._plans[x.layout, x.layout]
    assert isinstance(made, plan.DevicePlan)
    made._token = object()
    assert (x @ x).numpy().tolist() == [[3, 3, 3]] * 3
    assert made._renewed()._token is x.device.context.token


# A step multiplies one array by another, moved to the other's device.
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=10)


@given(STEPS, st.sampled_from(["async", "serial"]))
def test_programs_of_products_on_all_devices_equal_the_serial_program(steps, kind):
    hosts = [values((3, 3), np.dtype("i8"), seed) for seed in range(4)]
    places = [0, "cpu", *(min(n, cs.device_count() - 1) for n in (1, 2))]
    with cs.Engine(kind):
        mine = [xp.asarray(h, device=place) for h, place in zip(hosts, places, strict=True)]
        for to, of, in_place in steps:
            source = mine[of].to_device(mine[to].device)
            if in_place:
                mine[to] @= source.T
                hosts[to] = hosts[to] @ hosts[of].T
            else:
                mine[to] = source @ mine[to] - mine[to]
                hosts[to] = hosts[of] @ hosts[to] - hosts[to]
        assert [each.numpy().tolist() for each in mine] == [each.tolist() for each in hosts]


@EVERYWHERE
def test_a_failure_poisons_the_products_of_what_it_wrote_and_no_other(device):
    def broken():
        raise RuntimeError("not today")

    with cs.Engine() as engine:
        x, y = xp.ones((2, 2), device=device), xp.ones((2, 2), device=device)
        engine.push(broken, writes=[x], name="broken")
        spoilt, sound = [y @ x, x @ y, (x @ y) @ y], y @ y
        for each in spoilt:
            with pytest.raises(cs.OpError, match="broken"):
                each.numpy()
        assert sound.numpy().tolist() == [[2, 2], [2, 2]]
        engine.clear_errors()
