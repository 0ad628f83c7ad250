"""Python's operators on arrays, and operations that need an array's value."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.testing import HostLatch

BINARY = ["add", "sub", "mul", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"]
COMPARING = ["eq", "ne", "lt", "le", "gt", "ge"]
LEFT, RIGHT = np.int64([7, -7, 2, 5]), np.int64([2, 3, 1, 4])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*BINARY, *COMPARING, "truediv"])
def test_an_operator_is_numpys_from_either_side(name):
    function = getattr(operator, name)
    kind = np.float32 if name == "truediv" else np.int64
    left, right = LEFT.astype(kind), RIGHT.astype(kind)
    x, y = cs.array(left), cs.array(right)
    for mine, theirs in [
        (function(x, y), function(left, right)),
        (function(x, 2), function(left, kind(2))),
        (function(2, y), function(kind(2), right)),
    ]:
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine.numpy(), theirs)


@pytest.mark.parametrize("name", BINARY)
def test_in_place_keeps_the_array_and_its_dtype(name):
    function = getattr(operator, f"i{name.strip('_')}")
    x, host = cs.array(LEFT), LEFT.copy()
    view = x[1:]
    assert function(view, cs.array(RIGHT[1:])) is view
    function(host[1:], RIGHT[1:])
    assert x.numpy().tolist() == host.tolist()


@pytest.mark.parametrize("name", ["neg", "pos", "abs", "invert"])
def test_an_operator_of_one_array_is_numpys(name):
    function = getattr(operator, name)
    assert function(cs.array(LEFT)).numpy().tolist() == function(LEFT).tolist()


def test_an_operator_returns_before_its_operands_are_there():
    x, latch = cs.array([1.0, 2.0]), HostLatch()
    cs.engine().push(latch.wait, writes=[x])
    z = (x + 1) * x - x
    w = z[::-1] / 2.0
    assert not latch.is_released
    latch.release()
    assert z.numpy().tolist() == [1, 4]
    assert w.numpy().tolist() == [2, 0.5]


def test_the_operators_on_devices_run_where_their_arrays_are():
    for ordinal in range(min(2, cs.device_count())):
        x = cs.array([1, 2], device=ordinal)
        assert (x + x).device is x.device
        assert (x + x).numpy().tolist() == [2, 4]


def test_a_value_is_had_by_pythons_own_functions():
    x = cs.array([[3]])
    assert (float(x), int(x), bool(x), complex(x)) == (3.0, 3, True, 3 + 0j)
    assert [10, 20, 30, 40][cs.array(3)] == 40
    assert x[0, 0].item() == 3
    assert len(x) == 1
    assert [int(each) for row in x for each in row] == [3]
    assert np.asarray(x).tolist() == [[3]]
    assert np.asarray(x, dtype=np.float64).dtype == np.float64


def test_a_value_that_is_no_single_one_is_refused():
    x = cs.array([1, 2])
    for ask in (float, int, complex):
        with pytest.raises(TypeError, match=r"one element.*\(2,\)"):
            ask(x)
    with pytest.raises(ValueError, match="has no truth value"):
        bool(x)
    with pytest.raises(TypeError, match="0 dimensions"):
        operator.index(cs.array(1.0))
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(x, copy=False)


def test_print_shows_values_dtype_and_device():
    x = cs.array([[1, 2], [3, 4]], np.int16)
    assert str(x) == "[[1 2]\n [3 4]]"
    assert repr(x[0]) == "Array([1, 2], dtype=int16, device=0)"
    assert repr(x[:0]) == "Array([], shape=(0, 2), dtype=int16, device=0)"


@pytest.mark.parametrize("shape", [(3000,), (40, 50), (2, 3000), (7, 8, 900), (2000, 0), (2000, 1)])
def test_print_of_a_large_array_is_numpys_and_copies_its_corners_only(shape):
    host = np.arange(np.prod(shape)).reshape(shape)
    assert str(cs.array(host)) == str(host)
    if host.size:
        assert "..." in repr(cs.array(host))


def test_print_of_a_poisoned_array_says_why_and_does_not_raise():
    def broken():
        raise RuntimeError("not today")

    with cs.Engine() as engine:
        x = cs.zeros(2)
        engine.push(broken, writes=[x], name="broken")
        y = x + 1
        assert "broken" in repr(y)
        assert "broken" in str(y)
        with pytest.raises(cs.OpError):
            y.numpy()
        engine.clear_errors()


def test_a_namespace_is_told():
    x = xp.ones(2)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match="1999"):
        x.__array_namespace__(api_version="1999")
    info = xp.__array_namespace_info__()
    assert set(info.dtypes(kind="signed integer")) == {"int8", "int16", "int32", "int64"}
    assert info.default_device() in info.devices()
    assert info.default_dtypes()["real floating"] == xp.float32


def test_assignment_writes_a_view_in_order():
    host = np.arange(20, dtype=np.float32).reshape(4, 5)
    x = cs.array(host)
    for target in (x, host):
        target[1] = 7
        target[:, ::2] = target[:, 1:4]
        target[2, ::-1] = [1, 2, 3, 4, 5]
        target[3] = target[0]
        target[0, 0] = np.float32(9)
        target[...] += 1
    assert x.numpy().tolist() == host.tolist()


@pytest.mark.parametrize(
    ("index", "value", "error", "says"),
    [
        (0, 1.5, TypeError, "cast the array"),
        (0, np.float32(1), TypeError, "no common dtype"),
        (slice(None), [1, 2], ValueError, "do not broadcast"),
        (slice(None), 1 << 40, OverflowError, "does not fit int32"),
    ],
)
def test_an_assignment_that_can_not_be_is_refused(index, value, error, says):
    x = cs.array(np.arange(3, dtype=np.int32))
    with pytest.raises(error, match=says):
        x[index] = value
    assert x.numpy().tolist() == [0, 1, 2]


def test_transposes_are_views():
    x = cs.array(np.arange(6).reshape(2, 3))
    assert x.T.ptr == x.ptr
    assert x.T.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert xp.reshape(x, (1, 2, 3)).mT.shape == (1, 3, 2)
    with pytest.raises(ValueError, match="T takes 2 dimensions"):
        _ = x[0].T
    with pytest.raises(ValueError, match="2 or more dimensions"):
        _ = x[0].mT


def test_an_array_is_itself_in_a_set():
    x, y = cs.array([1]), cs.array([1])
    assert len({x, y, x}) == 2
    assert (x == None) is False  # noqa: E711
    assert (x != "1") is True


def test_a_number_of_numpys_goes_on_either_side():
    x = xp.ones(2)
    for found in (np.float32(2) * x, x * np.float32(2), np.int8(2) * xp.ones(2, dtype=xp.int8)):
        assert type(found) is cs.Array
        assert found.numpy().tolist() == [2, 2]


def test_operators_work_on_after_a_reset_of_their_device():
    device = cs.Device(cs.device_count() - 1)
    for _ in range(2):
        x = xp.ones(8, device=device)
        z = x + x
        z += x[::-1]
        assert z.numpy().tolist() == [3] * 8
        del x, z
        cs.waitall()
        device.reset()
