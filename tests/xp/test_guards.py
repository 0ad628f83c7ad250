"""A traced function gives what the plain function gives, whatever it reads from outside.

The property test changes the state at random between calls of functions that read it in all ways
that Python has: by both decorators, on devices and on the CPU.
"""

from __future__ import annotations

import cProfile
import enum
import itertools
import sys
import threading
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.arrays.outside_state import CHANGES, NAMES, changes, differences
from hypothesis import given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.guards import outside as reach
from cudasync.array.guards import places, tracing

DECORATORS = (cs.elementwise, cs.graph_function)
both = pytest.mark.parametrize("decorate", DECORATORS)


@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), changes, st.sampled_from(DECORATORS)
)
def test_a_traced_function_gives_what_the_plain_one_gives(names, steps, decorate):
    assert not differences(decorate, "cpu", names, steps)


@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=2), changes, st.sampled_from(DECORATORS)
)
@settings(max_examples=5)
def test_on_a_device_too(names, steps, decorate):
    assert not differences(decorate, 0, names, steps)


@pytest.mark.parametrize("name", NAMES)
@both
def test_each_way_to_read_sees_each_change(name, decorate):
    assert not differences(decorate, "cpu", [name], [(each, 3.5) for each in sorted(CHANGES)])


PLANTED = {
    "attributes are not compared": (places.Space, "has_values", lambda self: False),
    "elements are not compared": (places.Contents, "has_values", lambda self: False),
    "free variables are not compared": (places.Cell, "has_values", lambda self: False),
    "numbers of NumPy are not compared": (places.Numbers, "has_values", lambda self: False),
    "new attributes are not seen": (places.Space, "absence", lambda self: None),
    "classes are not looked at": (reach.Outside, "_look_at_class", lambda self, kind: None),
    "code that is called is not entered": (tracing.Watch, "_is_entered", lambda *_: False),
    "free variables are not followed": (reach.Outside, "_follow", lambda *_: None),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug, monkeypatch):
    owner, name, wrong = PLANTED[bug]
    monkeypatch.setattr(owner, name, wrong)
    steps = [(each, 3.5) for each in sorted(CHANGES)]
    assert any(differences(cs.elementwise, "cpu", [each], steps) for each in NAMES)


def test_values_that_are_the_same_again_need_no_new_trace():
    rates = SimpleNamespace(k=2.0, sizes=[1, (2, 3)], by={"a": 1.5})
    f = cs.graph_function(lambda x: x * rates.k + rates.sizes[0] + rates.by["a"])
    x = xp.ones(3, device="cpu")
    for _ in range(4):
        f(x)
        rates.k, rates.sizes, rates.by = float("2.0"), [1, (2, 3)], {"a": 1.5}
    assert f.traces == 1
    for k in (3.0, 2.0, 3.0):
        rates.k = k
        assert f(x).numpy().tolist() == [k + 2.5] * 3
    assert f.traces == 2
    rates.sizes.append(4)
    f(x)
    assert "rates.sizes (from outside) is a list of 3, and was a list of 2" in f.explain()


@both
def test_an_object_at_a_reused_address_is_another(decorate):
    class Config:
        def __init__(self, k):
            self.k = k

    config = Config(2.0)
    f = decorate(lambda x: x * config.k)
    x = xp.ones(2, device="cpu")
    for k in (2.0, 3.0, 4.0, 5.0):
        config = None
        config = Config(k)
        assert f(x).numpy().tolist() == [k, k]


@dataclass(frozen=True)
class Setting:
    """Equal objects, which differ in what equality does not compare."""

    k: float

    def __post_init__(self):
        object.__setattr__(self, "table", [1.0])


class Colour(enum.Enum):
    RED = 1.0
    BLUE = 2.0


@both
def test_objects_among_the_arguments_count_with_their_attributes(decorate):
    f = decorate(lambda x, setting, colour: x * setting.k * setting.table[0] * colour.value)
    x = xp.ones(2, device="cpu")
    assert f(x, Setting(2.0), Colour.RED).numpy().tolist() == [2, 2]
    assert f(x, Setting(2.0), Colour.BLUE).numpy().tolist() == [4, 4]
    other = Setting(2.0)
    other.table[0] = 5.0
    assert f(x, other, Colour.RED).numpy().tolist() == [10, 10]
    assert f(x, Setting(2.0), Colour.RED).numpy().tolist() == [2, 2]
    if decorate is cs.graph_function:
        assert f.traces == 3


class Model:
    def __init__(self, device):
        self.w, self.b = xp.ones(4, device=device), xp.zeros(4, device=device)
        self.moments = {"w": xp.zeros(4, device=device)}
        self.rate, self.losses, self.steps = 0.5, [], 0

    def step(self, x):
        g = x * self.w + self.b
        self.moments["w"] *= 0.5
        self.moments["w"] += g
        self.w -= self.rate * self.moments["w"]
        self.b[:2] -= g[:2]
        return xp.sum(g)


@pytest.mark.parametrize("device", [0, "cpu"])
def test_a_training_step_that_writes_in_place(device):
    x = xp.asarray(np.arange(4, dtype=np.float32), device=device)
    models = [Model(device), Model(device)]
    traced = cs.graph_function(models[0].step)
    losses = [[], []]
    for k in range(6):
        for model, step, found in zip(models, (traced, models[1].step), losses, strict=True):
            loss = step(x * (k + 1) / 10)
            found.append(float(loss))
            # The program's own book-keeping is no part of the trace.
            model.losses.append(loss)
            model.steps += 1
            if k == 3:
                model.rate /= 2
                model.b = model.b + 1
    assert losses[0] == losses[1]
    assert models[0].w.numpy().tolist() == models[1].w.numpy().tolist()
    assert models[0].b.numpy().tolist() == models[1].b.numpy().tolist()
    assert traced.traces == 2


def assigned(change):
    """A function that changes something outside, and what it may not change."""
    net = SimpleNamespace(w=xp.ones(2, device="cpu"), n=1, seen=[], by={}, inner=SimpleNamespace())
    n = 1

    def f(x):
        nonlocal n
        match change:
            case "attribute":
                net.w = net.w + x
            case "number":
                net.n += 1
            case "new attribute":
                net.inner.y = x * 2
            case "free variable":
                n += 1
            case "global":
                global COUNT
                COUNT += 1
            case "new global":
                global NEW
                NEW = x
            case "list":
                net.seen.append(x)
            case "dict":
                net.by["x"] = 1
            case "deleted":
                del net.n
            case "class":
                Model.count = object()
        return x * 2

    def state():
        inside = {k: v for k, v in vars(net).items() if k != "inner"}
        return {**inside, "seen": list(net.seen), "by": dict(net.by)}, dict(vars(net.inner)), n

    return f, state


COUNT = 0
ARRAYS = {"attribute", "new attribute", "new global", "list"}
CASES = {
    "attribute": "net.w",
    "number": "net.n",
    "new attribute": "net.inner.y",
    "free variable": "n",
    "global": "COUNT",
    "new global": "NEW",
    "list": "net.seen",
    "dict": "net.by",
    "deleted": "net.n",
    "class": "Model.count",
}


@pytest.mark.parametrize("change", CASES)
@both
def test_a_trace_that_assigns_to_something_outside_raises(change, decorate):
    f, state = assigned(change)
    before = state()
    x = xp.ones(2, device="cpu")
    with pytest.raises(cs.RecordingError) as raised:
        decorate(f)(x)
    said = str(raised.value)
    assert f"f assigns to {CASES[change]} (" in said
    assert "test_guards.py:" in said
    assert "return the new value" in said
    if change in ARRAYS:
        # An array of a trace has no value, so it does not stay.
        assert all(one is other for one, other in zip(flat(before), flat(state()), strict=True))
        assert "NEW" not in globals()
    assert (x + 1).numpy().tolist() == [2, 2]


def flat(state):
    inside, inner, n = state
    return [*[e for v in inside.values() for e in (v if isinstance(v, list) else [v]) if e != {}],
            *inner.values(), n]  # fmt: skip


def test_state_of_the_traces_own_may_change():
    @cs.graph_function
    def f(x):
        own = SimpleNamespace(total=x)
        for k in range(3):
            own.total = own.total + k
        parts = [own.total]
        parts.append(x)
        return parts[0] + parts[1]

    assert f(xp.ones(2)).numpy().tolist() == [5, 5]


class Loud(type):
    """A class and its objects, which raise when anybody asks them."""

    def __getattr__(cls, name):
        raise AssertionError(name)


class LoudObject(metaclass=Loud):
    __class__ = property(lambda self: 1 / 0)
    __eq__ = __hash__ = __repr__ = __bool__ = __len__ = lambda self, *_: 1 / 0


@both
def test_no_code_of_the_users_runs_in_a_comparison(decorate):
    loud = LoudObject()
    loud.k = 2.0
    f = decorate(lambda x: x * loud.k)
    x = xp.ones(2, device="cpu")
    for k in (2.0, 3.0, 3.0):
        loud.k = k
        assert f(x).numpy().tolist() == [k, k]


def test_memory_of_numpy_that_a_graph_writes_is_not_compared():
    host = np.zeros(2, np.float32)

    @cs.graph_function
    def f(x):
        cs.copy(host, x * 2)

    for k in (1.0, 2.0):
        f(xp.full(2, k, device="cpu"))
        cs.waitall()
        assert host.tolist() == [2 * k, 2 * k]
    assert f.traces == 1


def test_a_warning_names_the_line_of_a_value_that_always_changes():
    model = SimpleNamespace(rate=0.0)

    @cs.graph_function
    def f(x):
        return x * model.rate

    x = xp.ones(2, device="cpu")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for k in range(30):
            model.rate = float(k)
            assert f(x).numpy().tolist() == [k, k]
    (said,) = [str(each.message) for each in found]
    assert "f was traced more than 8 times for one signature, because model.rate" in said
    line = f.__wrapped__.__code__.co_firstlineno + 2
    assert f"test_guards.py:{line} reads" in said
    assert found[0].filename == __file__
    assert f.traces == 30


@both
def test_a_traced_function_inside_of_another_counts_with_what_it_reads(decorate):
    config = SimpleNamespace(k=2.0)
    inner = decorate(lambda x: x * config.k)
    outer = cs.graph_function(lambda x: inner(x) + 1)
    x = xp.ones(2, device="cpu")
    for k in (2.0, 3.0, 2.0):
        config.k = k
        # The inner function may know it already.
        assert inner(x).numpy().tolist() == [k, k]
        assert outer(x).numpy().tolist() == [k + 1, k + 1]


def test_a_profiler_goes_on_during_and_after_a_trace():
    f = cs.graph_function(lambda x: x * 2)
    seen = []

    def profiler(frame, event, argument):
        if event == "call" and frame.f_code is f.__wrapped__.__code__:
            seen.append(event)

    sys.setprofile(profiler)
    try:
        f(xp.ones(2, device="cpu"))
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert seen == ["call"]
    in_c = cProfile.Profile()
    in_c.enable()
    try:
        cs.elementwise(lambda x: x * 2)(xp.ones(2, device="cpu"))
        flat(({}, {}, 0))
    finally:
        in_c.disable()
    assert any(each.code is flat.__code__ for each in in_c.getstats())
    with pytest.raises(ZeroDivisionError):
        cs.graph_function(lambda x: 1 / 0)(xp.ones(2, device="cpu"))
    assert sys.getprofile() is None
    assert not tracing.WATCHES


def test_threads_trace_at_once():
    config = SimpleNamespace(k=2.0)
    f = cs.elementwise(lambda x: x * config.k)
    wrong, numbers = [], itertools.count()

    def work():
        x = xp.ones(2, device="cpu")
        for _ in range(30):
            k = float(next(numbers))
            if cs.elementwise(lambda x, k=k: x * k * 2)(x).numpy().tolist() != [2 * k, 2 * k]:
                wrong.append(k)
            if f(x).numpy().tolist() != [2, 2]:
                wrong.append("f")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
