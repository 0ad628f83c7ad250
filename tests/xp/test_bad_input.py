"""Each mistake of a caller is a named error with a remedy, on a device and on the CPU.

A refused call pushes nothing, and makes no driver call that enqueues or allocates.
"""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync import xp
from cudasync.array.array import ReadOnlyArray

HUGE = 1 << 40
# Driver calls that ask, or load a kernel: they change no memory and no stream.
ASKS = ("Get", "Query", "Current", "Module", "ThreadExchange", "IsCapturing")


class Given:
    """Arrays for wrong calls: on one device, and some elsewhere."""

    def __init__(self, device) -> None:
        self.device = device
        self.f = xp.asarray(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
        self.i = xp.asarray(np.arange(6).reshape(2, 3), device=device)
        self.small = xp.asarray(np.arange(3, dtype=np.int8), device=device)
        self.b = xp.asarray([[True] * 3] * 2, device=device)
        self.row = xp.asarray([1.0, 2.0, 3.0, 4.0], device=device)
        self.other = xp.asarray(np.ones((2, 3), np.float32), device="cpu" if device == 0 else 0)
        self.there = xp.asarray([0], device=self.other.device)
        # 2**40 elements in four bytes.
        self.wide = xp.broadcast_to(self.f[0, 0], (HUGE,))
        self.only = read_only(self.f)


def read_only(x):
    """An array like `x` over memory that must not be written."""
    if x.device == "cpu":
        host = x.numpy()
        host.flags.writeable = False
        return cs.from_dlpack(host)
    return ReadOnlyArray(x._allocation, x.ptr, x.shape, x.strides, x.dtype)


@pytest.fixture(scope="module")
def given():
    made = {device: Given(device) for device in (0, "cpu")}
    cs.waitall()
    yield made
    # This frees their memory before the next file counts memory.
    made.clear()


AXES = {
    "sum": lambda x, axis: xp.sum(x, axis=axis),
    "argmax": lambda x, axis: xp.argmax(x, axis=axis),
    "std": lambda x, axis: xp.std(x, axis=axis),
    "sort": lambda x, axis: xp.sort(x, axis=axis),
    "concat": lambda x, axis: xp.concat([x, x], axis=axis),
    "stack": lambda x, axis: xp.stack([x, x], axis=axis),
    "flip": lambda x, axis: xp.flip(x, axis=axis),
    "roll": lambda x, axis: xp.roll(x, 1, axis=axis),
    "repeat": lambda x, axis: xp.repeat(x, 2, axis=axis),
    "diff": lambda x, axis: xp.diff(x, axis=axis),
    "vecdot": lambda x, axis: xp.vecdot(x, x, axis=axis),
    "unstack": lambda x, axis: xp.unstack(x, axis=axis),
    "expand_dims": lambda x, axis: xp.expand_dims(x, axis=axis),
    "squeeze": lambda x, axis: xp.squeeze(x, axis=axis),
    "moveaxis": lambda x, axis: xp.moveaxis(x, axis, 0),
    "cumulative_sum": lambda x, axis: xp.cumulative_sum(x, axis=axis),
    "tensordot": lambda x, axis: xp.tensordot(x, x, axes=([axis], [axis])),
}

WRONG = {
    # Dtypes.
    "kinds": (lambda g: g.f + g.i, TypeError, "cast one"),
    "kinds of a product": (lambda g: g.f @ g.i.T, TypeError, "cast one"),
    "truths": (lambda g: g.b + g.b, TypeError, "cast with"),
    "a product of truths": (lambda g: g.b @ g.b.T, TypeError, "cast with"),
    "a mean of integers": (lambda g: xp.mean(g.i), TypeError, "cast with"),
    "an index of floats": (lambda g: g.f[g.f], TypeError, "cast with"),
    "places of floats": (lambda g: xp.take(g.f, g.f[0], axis=0), TypeError, "integer indices"),
    "an index of words": (lambda g: g.f["a"], TypeError, "arrays of integers or bool, not str"),
    "a device by name": (lambda g: xp.zeros(3, device="gpu"), TypeError, 'array also "cpu"'),
    "no dtype": (lambda g: xp.zeros(3, dtype="no", device=g.device), TypeError, "not understood"),
    "objects": (lambda g: xp.zeros(3, dtype=object, device=g.device), TypeError, "use bool"),
    "dates": (lambda g: xp.zeros(3, dtype="M8[s]", device=g.device), TypeError, "use bool"),
    "a dtype of complex": (
        lambda g: xp.zeros(3, dtype=np.complex64, device=g.device),
        NotImplementedError,
        "keep two arrays",
    ),
    "a cast to complex": (
        lambda g: xp.astype(g.f, np.complex64),
        NotImplementedError,
        "keep two arrays",
    ),
    "a sum with complex": (lambda g: g.f + 1j, NotImplementedError, "complex"),
    "a list of complex": (
        lambda g: xp.asarray([1j], device=g.device),
        NotImplementedError,
        "keep two arr",
    ),
    "a complex element": (lambda g: g.f.__setitem__(0, 1j), NotImplementedError, "keep two arrays"),
    "full of complex": (lambda g: xp.full(3, 1j, device=g.device), NotImplementedError, "complex"),
    # Values.
    "a number too large": (lambda g: g.small + 300, OverflowError, "holds -128 to 127"),
    "a comparison with it": (lambda g: g.small < 300, OverflowError, "holds -128 to 127"),
    "an element too large": (lambda g: g.small.__setitem__(0, 300), OverflowError, "holds -128"),
    "full of it": (
        lambda g: xp.full(3, 300, dtype=xp.int8, device=g.device),
        OverflowError,
        "holds -128",
    ),
    "more than 64 bits": (lambda g: g.i + (1 << 70), OverflowError, "does not fit int64"),
    "more than a float": (lambda g: g.f + 10**400, OverflowError, r"float\('inf'\)"),
    "an array of it": (lambda g: xp.asarray(1 << 70, device=g.device), TypeError, "64 bits"),
    "a list that is ragged": (
        lambda g: xp.asarray([[1], [1, 2]], device=g.device),
        ValueError,
        "inhomogeneous",
    ),
    "a ragged part": (lambda g: g.f.__setitem__(0, [[1], [1, 2]]), ValueError, "inhomogeneous"),
    "a word": (lambda g: xp.asarray("abc", device=g.device), TypeError, "use bool"),
    "words": (lambda g: xp.asarray(["a", "b"], device=g.device), TypeError, "use bool"),
    "a sum with a word": (lambda g: g.f + "a", TypeError, "unsupported operand"),
    "None": (lambda g: xp.asarray(None, device=g.device), TypeError, "takes numbers"),
    "Python's objects": (lambda g: cs.array([object()], device=g.device), TypeError, "fixed size"),
    "a sum with a list": (lambda g: g.f - [1, 2, 3], TypeError, "unsupported operand"),
    "NumPy's array": (lambda g: g.f + np.ones(3), TypeError, "asarray"),
    "a sum of a list": (lambda g: xp.sum([1, 2]), TypeError, "asarray"),
    "a concat of words": (lambda g: xp.concat("ab"), TypeError, "asarray"),
    "arange to nan": (lambda g: xp.arange(nan, device=g.device), ValueError, "finite"),
    "arange to infinity": (lambda g: xp.arange(0, inf, device=g.device), ValueError, "finite"),
    "arange of words": (lambda g: xp.arange("a", device=g.device), TypeError, "takes numbers"),
    "linspace of words": (
        lambda g: xp.linspace("a", 1, 3, device=g.device),
        TypeError,
        "takes numbers",
    ),
    # Shapes.
    "a negative shape": (lambda g: xp.zeros((2, -1), device=g.device), ValueError, "negative"),
    "a shape of nan": (lambda g: xp.zeros(nan, device=g.device), TypeError, "is an integer"),
    "a shape of words": (lambda g: xp.zeros("3", device=g.device), TypeError, "is an integer"),
    "a negative eye": (lambda g: xp.eye(-1, device=g.device), ValueError, "negative"),
    "a negative linspace": (
        lambda g: xp.linspace(0, 1, -1, device=g.device),
        ValueError,
        "negative",
    ),
    "a reshape to nan": (lambda g: xp.reshape(g.f, (nan,)), TypeError, "is an integer"),
    "another size": (lambda g: xp.reshape(g.f, (4, 2)), ValueError, "6 elements"),
    "a negative repeat": (lambda g: xp.repeat(g.f, -1), ValueError, "from 0 on"),
    "no broadcast": (lambda g: g.f + g.row, ValueError, "do not broadcast"),
    "no product": (lambda g: g.f @ g.f, ValueError, "the matching axis"),
    "a part of another shape": (lambda g: g.f.__setitem__(0, g.row), ValueError, "not broadcast"),
    "an index beyond": (lambda g: g.f[2], IndexError, "outside axis 0"),
    "a list beyond": (lambda g: g.f[[5]], IndexError, "outside axis 0"),
    "an index of nan": (lambda g: g.f[nan], TypeError, "takes integers"),
    "too many indices": (lambda g: g.f[0, 0, 0], IndexError, "2 dimensions"),
    "no index is valid": (lambda g: xp.max(g.f[:0]), ValueError, "at least one element"),
    # Sizes.
    "too many": (lambda g: xp.zeros(HUGE, device=g.device), MemoryError, "in parts"),
    "too many to count": (lambda g: xp.empty(1 << 80, device=g.device), MemoryError, "in parts"),
    "too many in rows": (
        lambda g: xp.ones((1 << 20, 1 << 20), device=g.device),
        MemoryError,
        "in parts",
    ),
    "too many like it": (lambda g: xp.zeros_like(g.wide), MemoryError, "in parts"),
    "too long an arange": (lambda g: xp.arange(HUGE, device=g.device), MemoryError, "in parts"),
    "too large an eye": (lambda g: xp.eye(1 << 20, device=g.device), MemoryError, "in parts"),
    "too large a sum": (lambda g: g.wide + 1, MemoryError, "in parts"),
    "too large a copy": (lambda g: g.wide.copy(), MemoryError, "in parts"),
    "too large to fetch": (lambda g: g.wide.numpy(), MemoryError, "in parts"),
    "too many to sort": (lambda g: xp.sort(g.wide), MemoryError, "in parts"),
    "too many to tell": (lambda g: xp.unique_values(g.wide), MemoryError, "in parts"),
    "too many to scan": (lambda g: xp.cumulative_sum(g.wide), MemoryError, "in parts"),
    "too many to repeat": (lambda g: xp.repeat(g.f, HUGE), MemoryError, "in parts"),
    "too many tiles": (lambda g: xp.tile(g.f, (1 << 20, 1 << 20)), MemoryError, "in parts"),
    "too many together": (lambda g: xp.concat([g.wide, g.wide]), MemoryError, "in parts"),
    "too large a product": (
        lambda g: g.wide[: 1 << 20, None] @ g.wide[None, : 1 << 20],
        MemoryError,
        "in parts",
    ),
    # Devices.
    "no such device": (lambda g: xp.ones(2, device=99), ValueError, "there is no device 99"),
    "no device": (lambda g: xp.ones(2, device="gpu"), TypeError, "its ordinal"),
    "to no device": (lambda g: g.f.to_device(99), ValueError, "there is no device 99"),
    "two devices": (lambda g: g.f + g.other, ValueError, "to_device"),
    "a product of two": (lambda g: g.f @ g.other.T, ValueError, "to_device"),
    "a choice of two": (lambda g: xp.where(g.b, g.f, g.other), ValueError, "to_device"),
    "a row of two": (lambda g: xp.concat([g.f, g.other]), ValueError, "to_device"),
    "an index elsewhere": (lambda g: g.f[g.there], ValueError, "to_device"),
    "places elsewhere": (lambda g: xp.take(g.f, g.there, axis=0), ValueError, "to_device"),
    "an element elsewhere": (lambda g: g.f.__setitem__(0, g.other[0]), ValueError, "to_device"),
    # Results.
    "out of another dtype": (lambda g: xp.add(g.f, g.f, out=g.i), TypeError, "cast with"),
    "out of another shape": (lambda g: xp.add(g.f, g.f, out=g.f[0]), ValueError, "gives shape"),
    "out elsewhere": (lambda g: xp.add(g.f, g.f, out=g.other), ValueError, "to_device"),
    "out in NumPy": (lambda g: xp.add(g.f, g.f, out=np.ones(3)), TypeError, "must be an array"),
    "out of elements in one place": (
        lambda g: xp.add(g.row[:3], 1, out=xp.broadcast_to(g.row[0], 3)),
        ValueError,
        "share memory",
    ),
    "out of a product": (lambda g: xp.matmul(g.f, g.f.T, out=g.f), ValueError, "gives shape"),
    "out of a sum": (lambda g: xp.sum(g.f, axis=0, out=g.i[0]), TypeError, "gives float32"),
    "read-only": (lambda g: xp.add(g.f, 1, out=g.only), ValueError, r"x\.copy\(\)"),
    "read-only in place": (lambda g: g.only.__iadd__(1), ValueError, r"x\.copy\(\)"),
    "read-only products": (lambda g: g.only[:, :2].__imatmul__(g.f[:, :2]), ValueError, "copy"),
    "a read-only part": (lambda g: g.only.__setitem__(0, 1), ValueError, r"x\.copy\(\)"),
    "a read-only target": (lambda g: cs.copy(g.only, g.f), ValueError, "read-only"),
    "NumPy of another dtype": (lambda g: g.f.numpy(out=np.ones((2, 3))), TypeError, "cast first"),
    "NumPy of another shape": (
        lambda g: g.f.numpy(out=np.ones(3, np.float32)),
        ValueError,
        "shape",
    ),
    # Values of arrays.
    "many truths": (lambda g: bool(g.f), ValueError, r"any\(\) or all\(\)"),
    "one of many": (lambda g: float(g.f), TypeError, "one element"),
    "the length of none": (lambda g: len(g.f[0, 0]), TypeError, "no length"),
}
for _name, _call in AXES.items():
    WRONG[f"{_name} along nan"] = (lambda g, c=_call: c(g.f, nan), TypeError, "is an integer")
    WRONG[f"{_name} along a word"] = (lambda g, c=_call: c(g.f, "0"), TypeError, "is an integer")
    WRONG[f"{_name} beyond"] = (lambda g, c=_call: c(g.f, 7), IndexError, "axis 7")
for _name in ("sum", "std", "flip"):
    _call = AXES[_name]
    WRONG[f"{_name} twice"] = (lambda g, c=_call: c(g.f, (0, -2)), ValueError, "named twice")


def enqueued(calls) -> list[str]:
    return [name for name in calls if not any(word in name for word in ASKS)]


def refused(given, name: str, device) -> None:
    call, error, says = WRONG[name]
    cs.waitall()
    count = cs.engine().statistics().ops
    with counted_calls() as calls, pytest.raises(error, match=says):
        call(given[device])
    assert enqueued(calls) == []
    assert cs.engine().statistics().ops == count


@pytest.mark.parametrize("device", [0, "cpu"])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_before_anything_is_enqueued(given, name, device):
    refused(given, name, device)


@pytest.mark.parametrize("device", [0, "cpu"])
def test_what_is_pushed_before_it_is_refused_is_seen(given, device, monkeypatch):
    """The planted bug."""

    def late(g):
        (g.f + 1).wait()
        raise TypeError("too late")

    monkeypatch.setitem(WRONG, "late", (late, TypeError, "too late"))
    with pytest.raises(AssertionError):
        refused(given, "late", device)


@pytest.mark.parametrize("device", [0, "cpu"])
def test_nothing_is_computed_on_a_closed_engine(device):
    with cs.Engine() as engine:
        x = xp.ones((2, 2), device=device)
        view = x[1:]
        x.wait()
        engine.close()
        for call in (
            lambda: x + 1,
            lambda: x.__iadd__(1),
            lambda: xp.sum(view),
            lambda: x @ x,
            lambda: x.__setitem__(0, 1),
            lambda: xp.sort(x),
            lambda: xp.cumulative_sum(view[0]),
            lambda: x.copy(),
            lambda: x.to_device("cpu" if device == 0 else 0),
        ):
            with pytest.raises(cs.ClosedError, match="make a new one"):
                call()


@pytest.mark.parametrize("device", [0, "cpu"])
def test_a_view_keeps_the_memory_that_it_is_of(device):
    view = xp.asarray([1.0, 2.0, 3.0], device=device)[1:]
    others = [xp.zeros(3, device=device) for _ in range(20)]
    assert (view + 1).numpy().tolist() == [3, 4]
    assert not xp.stack(others).numpy().any()


@pytest.mark.parametrize("device", [0, "cpu"])
def test_an_integer_to_a_negative_power_is_what_is_left_of_it(device):
    x = xp.asarray([-2, -1, 1, 2, 0], device=device)
    assert (x**-1).numpy().tolist() == [0, -1, 1, 0, 0]
    assert (x**-2).numpy().tolist() == [0, 1, 1, 0, 0]
    assert (x**2).numpy().tolist() == [4, 1, 1, 4, 0]
