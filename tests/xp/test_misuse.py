"""Impossible computations are refused by name, before anything is pushed."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp


def pushed() -> int:
    return cs.engine().push(lambda stream: None, device=0).number


INTS, FLOATS, BOOLS = (cs.array(np.ones(3, kind)) for kind in (np.int32, np.float32, bool))

WRONG = [
    (lambda: FLOATS + INTS, TypeError, r"float32 and int32.*astype"),
    (lambda: BOOLS + BOOLS, TypeError, r"add takes signed integers.*not bool"),
    (lambda: INTS / INTS, TypeError, r"divide takes floats, not int32"),
    (lambda: xp.sqrt(INTS), TypeError, r"sqrt takes floats"),
    (lambda: INTS + 1.5, TypeError, r"int32 and a Python float"),
    (lambda: INTS & True, TypeError, r"int32 and a Python bool"),
    (lambda: INTS + (1 << 31), OverflowError, r"does not fit int32"),
    (lambda: FLOATS + 1j, NotImplementedError, r"complex"),
    (lambda: FLOATS + np.ones(3), TypeError, r"xp\.asarray"),
    (lambda: np.ones(3) + FLOATS, TypeError, r"xp\.asarray"),
    (lambda: FLOATS + "1", TypeError, r"unsupported operand"),
    (lambda: FLOATS + xp.ones(4), ValueError, r"\(3,\) and \(4,\) do not broadcast"),
    (lambda: xp.where(FLOATS, FLOATS, FLOATS), TypeError, r"condition of where"),
    (lambda: xp.where(BOOLS, 1.0, 2.0), TypeError, r"at least one array"),
    (lambda: xp.add(1, 2), TypeError, r"at least one array"),
    (lambda: xp.add(FLOATS, FLOATS, out=INTS), TypeError, r"gives float32.*has int32"),
    (lambda: xp.add(FLOATS, FLOATS, out=xp.ones(4)), ValueError, r"do not broadcast|gives shape"),
    (lambda: xp.add(FLOATS, xp.ones((2, 1)), out=xp.ones(3)), ValueError, r"gives shape"),
    (lambda: xp.add(FLOATS, 1, out=np.ones(3)), TypeError, r"must be an array"),
    (lambda: xp.add(FLOATS, 1, out=xp.broadcast_to(FLOATS, (2, 3))), ValueError, r"share memory"),
    (lambda: xp.ones(-1), ValueError, r"negative"),
    (lambda: xp.ones(1.5), TypeError, r"integer"),
    (lambda: xp.ones(1 << 40), MemoryError, r"in parts"),
    (lambda: xp.empty((1 << 20, 1 << 20)), MemoryError, r"in parts"),
    (lambda: xp.broadcast_to(xp.ones(()), (1 << 40,)) + 1, MemoryError, r"in parts"),
    (lambda: xp.ones(2, device=99), ValueError, r"99"),
    (lambda: xp.arange(1, 5, 0), ValueError, r"step"),
    (lambda: xp.asarray([1j]), NotImplementedError, r"complex"),
    (lambda: xp.asarray([[1], [1, 2]]), ValueError, r"inhomogeneous"),
    (lambda: xp.asarray([1], copy=False), ValueError, r"copy=False"),
    (lambda: xp.reshape(FLOATS, (2, 2)), ValueError, r"3 elements"),
    (lambda: xp.reshape(xp.ones((2, 3)).T, 6, copy=False), ValueError, r"copy=False"),
    (lambda: xp.permute_dims(FLOATS, (0, 0)), ValueError, r"twice"),
    (lambda: xp.squeeze(FLOATS, 0), ValueError, r"length 3"),
    (lambda: xp.flip(FLOATS, axis=2), IndexError, r"axis 2"),
    (lambda: xp.concat([FLOATS, xp.ones((2, 2))]), ValueError, r"differ"),
    (lambda: xp.stack([]), ValueError, r"at least one"),
    (lambda: FLOATS.to_device(0, stream=1), ValueError, r"leave stream= out"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_call_is_refused_before_anything_is_pushed(number):
    call, error, says = WRONG[number]
    with pytest.raises(error, match=says):
        call()


def test_a_refused_operation_leaves_its_target_alone():
    x = xp.ones(3)
    version = pushed()
    with pytest.raises(TypeError):
        x += INTS
    assert pushed() == version + 1
    assert x.numpy().tolist() == [1, 1, 1]


@pytest.mark.skipif("cs.device_count() < 2")
def test_arrays_of_two_devices_are_refused_by_name():
    x, y = xp.ones(2), xp.ones(2, device=1)
    for call in (lambda: x + y, lambda: xp.concat([x, y]), lambda: xp.add(x, x, out=y)):
        with pytest.raises(ValueError, match=r"Device\(0\) and Device\(1\).*to_device"):
            call()
    assert (x + y.to_device(0)).numpy().tolist() == [2, 2]


def test_memory_that_must_not_change_is_not_written():
    host = np.ones(3, np.float32)
    x = cs.array(host)
    from cudasync.array.array import ReadOnlyArray

    only = ReadOnlyArray(x._allocation, x.ptr, x.shape, x.strides, x.dtype)
    assert type(only + 1) is cs.Array
    for call in (lambda: only.__iadd__(1), lambda: only.__setitem__(0, 1)):
        with pytest.raises(ValueError, match="read-only"):
            call()


def test_what_the_namespace_does_not_have_says_so_and_is_not_there():
    """The standard tells callers to test for an extension by `hasattr`."""
    for name in ("fft", "linalg", "complex64", "complex128"):
        assert not hasattr(xp, name)
        with pytest.raises(NotImplementedError, match=r"extension|complex"):
            getattr(xp, name)
    for name, instead in (("array", "xp.asarray"), ("concatenate", "xp.concat")):
        with pytest.raises(AttributeError, match=instead):
            getattr(xp, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'") as error:
        getattr(xp, "non" + "sense")
    assert not isinstance(error.value, NotImplementedError)


@pytest.mark.parametrize("place", [0, "cpu"])
def test_an_array_says_what_to_write_for_a_method_that_it_lacks(place):
    x = xp.ones(3, device=place)
    for name, instead in (("sum", r"xp\.sum\(x\)"), ("to", "to_device"), ("get", r"x\.numpy\(\)")):
        assert not hasattr(x, name)
        with pytest.raises(AttributeError, match=f"no attribute '{name}': write .*{instead}"):
            getattr(x, name)
    for name in ("nonsense", "_private", "__array_interface__"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(x, name)
