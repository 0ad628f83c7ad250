"""`@cs.elementwise`: one kernel equals the operations one by one, bit for bit."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.fused import function, tracer

X = np.array([-3.5, -1, -0.25, 0.0, 0.5, 1e-3, 7, 12.5])
VALUES = {
    "float32": X.astype(np.float32),
    "float64": X,
    "float16": X.astype(np.float16),
    "int8": np.array([-128, -7, -1, 0, 1, 5, 100, 127], np.int8),
}
FLOATS = ("tanh", "abs", "square", "sqrt", "exp", "negative")
INTEGERS = ("abs", "square", "negative", "bitwise_invert", "sign", "positive")
PAIRS = ("add", "multiply", "subtract", "maximum", "minimum", "where")


def trees(depth):
    """Expressions of x and y: nested names of functions."""
    leaf = st.sampled_from(["x", "y", 2, 3])
    if not depth:
        return st.sampled_from(["x", "y"])
    inner = trees(depth - 1)
    return st.one_of(
        st.tuples(st.integers(0, 5), inner),
        st.tuples(st.sampled_from(PAIRS), inner, leaf),
        st.tuples(st.sampled_from(PAIRS), inner, inner),
    )


def computed(tree, x, y):
    if isinstance(tree, str):
        return {"x": x, "y": y}[tree]
    if isinstance(tree, int):
        return tree
    name, *operands = tree
    values = [computed(each, x, y) for each in operands]
    if isinstance(name, int):
        is_float = xp.isdtype(values[0].dtype, "real floating")
        return getattr(xp, (FLOATS if is_float else INTEGERS)[name])(*values)
    if name == "where":
        return xp.where(values[0] > values[1], *values)
    return getattr(xp, name)(*values)


def differences(tree, dtype, device):
    x = xp.asarray(VALUES[dtype], device=device)
    y = xp.asarray(VALUES[dtype][::-1].copy(), device=device)
    one = cs.elementwise(lambda x, y: computed(tree, x, y))(x, y)
    each = computed(tree, x, y)
    assert one.dtype == each.dtype
    kept = one.numpy().tobytes(), each.numpy().tobytes()
    return kept[0] != kept[1]


@given(trees(3), st.sampled_from(list(VALUES)))
@settings(max_examples=10)
def test_one_kernel_gives_what_the_operations_give(tree, dtype):
    assert not differences(tree, dtype, 0)


@given(trees(4), st.sampled_from(list(VALUES)))
def test_on_the_cpu_too(tree, dtype):
    assert not differences(tree, dtype, "cpu")


class SharesNumbers(tracer.Trace):
    """The planted bug: all numbers equal the first one."""

    def number(self, value):
        for at, each in enumerate(self.operands):
            if isinstance(each, int):
                return at
        return super().number(value)


def test_a_number_that_is_taken_for_another_is_found(monkeypatch):
    monkeypatch.setattr(function, "Trace", SharesNumbers)

    @settings(max_examples=200, deadline=None, database=None, phases=[Phase.generate])
    @given(trees(4))
    def search(tree):
        assert not differences(tree, "int8", "cpu")

    with pytest.raises(AssertionError):
        search()


def test_a_call_is_one_launch_and_traced_once_for_each_dtype():
    traced = io.StringIO()

    @cs.elementwise
    def chain(x, y):
        print(x.dtype, file=traced)
        return xp.tanh(x * y + 1) * x - y

    x = xp.asarray(np.ones((4, 1), np.float32))
    y = xp.asarray(np.arange(3, dtype=np.float32))
    chain(x, y).wait()
    with counted_calls() as calls:
        z = chain(x, y)
        z.wait()
    assert calls["cuLaunchKernel"] == 1
    assert z.shape == (4, 3)
    chain(x[::2], y[::-1])
    assert traced.getvalue() == "float32\n"
    assert chain.__name__ == "chain"
    assert chain.signatures == 1
    assert (z == xp.tanh(x * y + 1) * x - y).numpy().all()


def test_several_results_and_a_result_that_is_written_over_an_operand():
    x = xp.asarray(np.arange(6, dtype=np.float32))
    both = cs.elementwise(lambda x: (x + 1, x * 2))
    more, twice = both(x)
    assert more.numpy().tolist() == [1, 2, 3, 4, 5, 6]
    assert twice.numpy().tolist() == [0, 2, 4, 6, 8, 10]
    shifted = cs.elementwise(lambda a, b: a * 10 + b)
    assert shifted(x[1:], x[:-1], out=x[1:]).numpy().tolist() == [10, 21, 32, 43, 54]
    with pytest.raises(TypeError, match="results"):
        both(x, out=x)


SCALE = 2.0


def test_what_it_names_from_outside_is_what_it_is_at_the_call(monkeypatch):
    offset = xp.asarray(np.float32(1.0))
    count = 3

    @cs.elementwise
    def affine(x):
        return x * SCALE + offset + count

    x = xp.asarray(np.float32([1, 2]))
    assert affine(x).numpy().tolist() == [6, 8]
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert affine(x).numpy().tolist() == [8, 12]
    offset += 1
    assert affine(x).numpy().tolist() == [9, 13]
    offset = xp.asarray(np.float32(10.0))
    count = 0
    assert affine(x).numpy().tolist() == [14, 18]


def test_numbers_decide_and_one_function_calls_another():
    @cs.elementwise
    def power(x, n):
        result = x
        for _ in range(n - 1):
            result *= x
        return result

    @cs.elementwise
    def both(x):
        return power(x, 2) + power(x, 3)

    x = xp.asarray(np.array([1, 2, 3]))
    assert both(x).numpy().tolist() == [2, 12, 36]
    assert power(x, 1).numpy().tolist() == [1, 2, 3]
    # An update in place inside the function rebinds a name, and x is unchanged.
    assert x.numpy().tolist() == [1, 2, 3]


MISTAKES = {
    "asks for a value": (lambda x: x if x > 0 else -x, TypeError, "xp.where"),
    "asks for a number": (lambda x: x * float(x), TypeError, "xp.where"),
    "takes a part": (lambda x: x[0], TypeError, "one element at a time"),
    "asks for the shape": (lambda x: x / x.shape[0], AttributeError, "no 'shape'"),
    "reduces": (lambda x: x - xp.max(x), TypeError, "call max outside"),
    "multiplies matrices": (lambda x: x @ x, TypeError, "before the call"),
    "returns nothing": (lambda x: None, TypeError, "returned NoneType"),
    "returns a number": (lambda x: 3, TypeError, "returned int"),
    "mixes kinds": (lambda x: x + xp.astype(x, xp.int32), TypeError, "astype"),
    "writes": (lambda x: xp.add(x, 1, out=xp.zeros(2)), TypeError, "cannot write to arrays"),
    "raises": (lambda x: 1 / 0, ZeroDivisionError, "division"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_can_not_be_traced_is_said_and_changes_nothing(mistake):
    wrong, error, words = MISTAKES[mistake]
    x = xp.asarray(np.float32([1, 2]))
    with pytest.raises(error, match=words):
        cs.elementwise(wrong)(x)
    assert (x + 1).numpy().tolist() == [2, 3]


def test_wrong_arguments_are_said():
    with pytest.raises(TypeError, match="takes a function"):
        cs.elementwise(3)
    double = cs.elementwise(lambda x: x * 2)
    with pytest.raises(TypeError, match="hashable"):
        double([1, 2])
    with pytest.raises(ValueError, match="on one device"):
        cs.elementwise(lambda x, y: x + y)(xp.zeros(2), xp.zeros(2, device="cpu"))

    def doubles(x):
        for _ in range(12):
            x = x + x
        return x

    with pytest.raises(ValueError, match="places"):
        cs.elementwise(doubles)(xp.zeros(2))


def _writes(x, w):
    w += 1
    return x * w


# Work without an argument, which would happen in the trace alone.
ALONE = {
    "computes": lambda x, w: x * (w * 2),
    "reduces": lambda x, w: x / xp.max(w),
    "reads a value": lambda x, w: x * float(w[0]),
    "copies": lambda x, w: x * w.copy(),
    "reads a view": lambda x, w: x * (w[1:] + 1)[0],
    "writes": _writes,
    "overwrites": lambda x, w: (w.__setitem__(..., 7), x)[1],
    "pushes": lambda x, w: (cs.engine().push(print, reads=w), x)[1],
}


@pytest.mark.parametrize("place", [0, "cpu"])
@pytest.mark.parametrize("way", ALONE)
def test_work_on_arrays_from_outside_alone_is_refused(way, place):
    w, x = xp.ones(3, device=place), xp.ones(3, device=place)
    f = cs.elementwise(lambda x: ALONE[way](x, w))
    for _ in range(2):
        with pytest.raises(TypeError, match=r"before the call|beside the call"):
            f(x)
    assert w.numpy().tolist() == [1, 1, 1]
    assert cs.elementwise(lambda x: x * w)(x + 1).numpy().tolist() == [2, 2, 2]


@pytest.mark.parametrize("place", [0, "cpu"])
def test_constants_of_a_trace_within_a_recording_have_their_values(place):
    x = xp.ones(3, device=place)

    @cs.elementwise
    def f(x):
        return x * (xp.asarray(np.float32([1, 2, 3]), device=place) * 2)

    with cs.graph() as recorded:
        y = f(x)
    # The trace is used outside of the graph, before any launch of it.
    assert f(x).numpy().tolist() == [2, 4, 6]
    recorded.instantiate().launch()
    assert y.numpy().tolist() == [2, 4, 6]
    assert f.signatures == 1
