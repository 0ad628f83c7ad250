"""`@cs.graph_function` gives the plain function's results, and traces once per signature."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.traced.signature import Signature
from cudasync.array.traced.trace import Trace

KERNEL = r"""
extern "C" __global__ void axpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
N = 8


def numbers(seed, size=N, device=0):
    values = np.random.default_rng(seed).integers(-4, 5, size).astype(np.float32)
    return cs.array(values, device=device)


@pytest.fixture(params=["async", "serial"])
def engine(request):
    with cs.Engine(request.param) as engine:
        yield engine


# Statements of a function of two arrays and a number. Statements with an `=` make or write an
# array.
STATEMENTS = (
    "a = x + y * n",
    "b = a * a - x",
    "a = b[1:-1] + 2",
    "x += 1",
    "y[2:5] = x[1:4]",
    "x[...] = a if a.shape == x.shape else 3",
    "b = xp.sum(a)",
    "b = xp.zeros(8, device=x.device) + a if a.shape == (8,) else a",
    "a = xp.matmul(xp.reshape(x, (2, 4)), xp.reshape(y, (4, 2)))",
    "cs.copy(y[:2], x[4:6])",
    "a = xp.where(x > 0, y, n)",
)
RETURNS = ("a", "b", "x", "y[1:3]", "(a, b)", "{'a': a, 'y': [y, 3]}", "(a, a, n)", "None")
bodies = st.tuples(st.lists(st.sampled_from(STATEMENTS), max_size=6), st.sampled_from(RETURNS))


def function(statements, returned):
    text = "def f(x, y, n):\n    a, b = x, y\n"
    text += "".join(f"    {each}\n" for each in statements) + f"    return {returned}\n"
    namespace = {"xp": xp, "cs": cs}
    exec(text, namespace)
    return namespace["f"]


def values(tree):
    if isinstance(tree, (tuple, list)):
        return [values(each) for each in tree]
    if isinstance(tree, dict):
        return {key: values(each) for key, each in tree.items()}
    return tree.numpy().tolist() if isinstance(tree, cs.Array) else tree


def run(f, calls, device):
    """The results of the calls, read at the end, and the final contents of the arrays."""
    arrays = [numbers(seed, device=device) for seed in range(3)]
    with cs.Engine():
        returned = []
        for first, second, n in calls:
            try:
                returned.append(f(arrays[first], arrays[second], n))
            except (ValueError, TypeError, IndexError) as error:
                # A trace that fails has pushed nothing, but the plain function may have.
                return values(returned), type(error)
        return values(returned), values(arrays)


calls = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([1.0, 2.0])),
    min_size=1,
    max_size=6,
)


@given(bodies, calls, st.sampled_from([0, "cpu"]))
def test_it_gives_what_the_function_gives(body, calls, device):
    plain = function(*body)
    assert run(cs.graph_function(plain), calls, device) == run(plain, calls, device)


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Trace, "_given", lambda self, given, array: self._slots[given.argument]),
        (Signature, "__init__", "forgets which arrays are the same"),
        (Trace, "launch", "results of the call before"),
    ],
    ids=["returns the slot", "aliases", "one result"],
)
def test_a_planted_bug_is_found(owner, name, bug, monkeypatch):
    if bug == "forgets which arrays are the same":
        right = Signature.__init__

        def bug(self, given):
            right(self, given)
            self.key = self.key[0], tuple(self.parts)

    elif bug == "results of the call before":
        launch, kept = Trace.launch, {}

        def bug(self, arrays, frame):
            found = launch(self, arrays, frame)
            return kept.setdefault(id(self), (self, found))[1]

    monkeypatch.setattr(owner, name, bug)
    plain = function(["a = x + y * n", "x += 1"], "(a, x)")
    calls = [(0, 1, 1.0), (1, 2, 2.0), (2, 2, 1.0), (0, 1, 2.0)]
    with pytest.raises((AssertionError, KeyError, cs.RecordingError)):
        assert run(cs.graph_function(plain), calls, 0) == run(plain, calls, 0)


def test_results_of_earlier_calls_stay(engine):
    f = cs.graph_function(lambda x: x * 2 + 1)
    arrays = [numbers(seed) for seed in range(12)]
    results = [f(each) for each in arrays]
    for array, result in zip(arrays, results, strict=True):
        assert np.array_equal(result.numpy(), array.numpy() * 2 + 1)
    assert f.traces == 1


def test_it_says_why_it_was_traced():
    # A trace may print, and may not append.
    seen = io.StringIO()

    @cs.graph_function
    def f(x, n=1, *, how="up"):
        print(n, file=seen, end=" ")
        return x + n if how == "up" else x - n

    assert "was not called" in f.explain()
    with cs.Engine():
        f(numbers(1))
        f(numbers(2), 1)
        f(numbers(2), n=2)
        f(numbers(2, 4), 2)
        f(numbers(2, 4), 2, how="down")
        f(numbers(2, 4, "cpu"), 2, how="down")
        f(numbers(3))
    assert seen.getvalue() == "1 2 2 2 2 "
    assert f.traces == 5
    first, *others = f.explain().splitlines()
    assert "first call" in first
    for line, said in zip(
        others,
        ["n is 2, and was 1", "x is float32[4] on", "how is 'down', and was 'up'", "on cpu, and"],
        strict=True,
    ):
        assert said in line


FACTOR = 2


def test_what_it_names_from_outside_counts(monkeypatch):
    weights = numbers(5)

    @cs.graph_function
    def f(x):
        return x * weights + FACTOR

    with cs.Engine():
        x = numbers(1)
        for factor in (2, 3):
            monkeypatch.setitem(globals(), "FACTOR", factor)
            for _ in range(2):
                weights += 1
                assert np.array_equal(f(x).numpy(), x.numpy() * weights.numpy() + factor)
        assert f.traces == 2
        weights = numbers(6)
        assert np.array_equal(f(x).numpy(), x.numpy() * weights.numpy() + FACTOR)
    assert "weights (from outside) is another Array" in f.explain()


def test_nested_functions_are_part_of_the_outer_one(engine):
    inner = cs.graph_function(lambda x: x * x)
    outer = cs.graph_function(lambda x: inner(x) + inner(x + 1))
    x = numbers(1)
    for _ in range(3):
        assert np.array_equal(outer(x).numpy(), x.numpy() ** 2 + (x.numpy() + 1) ** 2)
    assert (outer.traces, inner.traces) == (1, 0)


def test_kernels_host_functions_and_copies_are_traced_too(engine):
    kernel = cs.Module.from_cuda(KERNEL).kernel("axpy")
    logged = []

    @cs.graph_function
    def step(y, x):
        kernel[1, 32](y, x, np.float32(2), N)
        z = y * 2
        cs.copy(y[:4], z[4:])
        cs.engine().push(lambda: logged.append(1), reads=y)
        return z

    pairs = [(numbers(k), numbers(k + 1)) for k in range(3)]
    for y, x in pairs * 2:
        before = y.numpy()
        z = step(y, x)
        after = before + 2 * x.numpy()
        assert np.array_equal(z.numpy(), 2 * after)
        assert np.array_equal(y.numpy(), np.concatenate([2 * after[4:], after[4:]]))
    engine.waitall()
    assert len(logged) == 6
    assert step.traces == 1


def test_trees_of_arguments_and_results():
    @cs.graph_function
    def f(parameters, batch):
        scaled = {name: each * 2 for name, each in parameters.items()}
        return scaled, [each + 1 for each in batch], len(batch)

    with cs.Engine():
        given = {"w": numbers(1), "b": numbers(2)}
        for _ in range(2):
            scaled, batch, count = f(given, (numbers(3), numbers(4)))
            assert np.array_equal(scaled["b"].numpy(), given["b"].numpy() * 2)
            assert np.array_equal(batch[1].numpy(), numbers(4).numpy() + 1)
            assert count == 2
        f(given, (numbers(3),))
    assert f.traces == 2


def test_threads_that_call_it_at_once_get_their_own_results():
    f = cs.graph_function(lambda x: xp.sum(x * 2) + x)
    wrong = []

    def work(seed):
        for k in range(20):
            x = numbers(100 * seed + k)
            if not np.array_equal(f(x).numpy(), x.numpy().sum() * 2 + x.numpy()):
                wrong.append((seed, k))

    with cs.Engine() as engine:
        threads = [
            threading.Thread(target=lambda s=s: in_engine(engine, work, s)) for s in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def in_engine(engine, work, *args):
    with cs.use(engine):
        work(*args)


def test_what_can_not_be_traced_is_told_of_or_called_as_it_is():
    f = cs.graph_function(lambda x: x * 2)
    with cs.Engine():
        x = numbers(1, 16)
        assert np.array_equal(f(x[::2]).numpy(), x.numpy()[::2] * 2)
        assert "called without a graph: an array with strides" in f.explain()
        assert f.traces == 0
        with pytest.raises(TypeError, match="hashable values"):
            f({1, 2})
        with pytest.raises(TypeError, match="required argument"):
            f()
        asks = cs.graph_function(lambda x: x.numpy())
        with pytest.raises(cs.RecordingError, match=r"test_graph_function\.py:\d+: a value"):
            asks(x)
        # The failed trace leaves nothing behind.
        assert np.array_equal((x + 1).numpy(), x.numpy() + 1)
    with pytest.raises(TypeError, match="takes a function, not int"):
        cs.graph_function(3)


def test_a_failure_is_that_of_the_call(engine):
    def may_fail():
        if is_red:
            raise ValueError("red")

    @cs.graph_function
    def f(x):
        y = x + 1
        cs.engine().push(may_fail, reads=x, writes=y, name="may fail")
        return y, x * 2

    x, is_red = numbers(1), []
    f(x)[0].wait()
    is_red.append(1)
    failed, well = f(x)
    with pytest.raises(cs.OpError, match="red"):
        failed.numpy()
    assert np.array_equal(well.numpy(), x.numpy() * 2)
    is_red.clear()
    assert np.array_equal(f(x)[0].numpy(), x.numpy() + 1)
    engine.clear_errors()
