"""A tape has the bits of the update that it records."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudasync.kvstore.optimizers import KNOWN, Optimizer, optimizer
from cudasync.kvstore.servers import update_tape
from cudasync.kvstore.servers.update_tape import Tape

RECORDED = sorted(name for name, each in KNOWN.items() if each.is_elementwise)
DTYPES = ["f2", "f4", "f8", "i4"]


class Plain:
    """The arithmetic of an update on whole arrays, with new memory for each result."""

    def __init__(self, made, dtype):
        self._rules = made.rules(np)
        self.rate = np.asarray(made.learning_rate, dtype)

    def __call__(self, rule, out, *arrays):
        made = self._rules[rule](*arrays)
        if out is None:
            return made
        out[...] = made
        return out


def fresh(made, dtype, size):
    rng = np.random.default_rng(size)
    state = {name: np.zeros(size, dtype) for name in made.arrays}
    state |= {name: np.ones((), dtype) for name in made.numbers}
    return (rng.normal(size=size) * 4).astype(dtype), state


def differs(made, dtype, size, steps):
    """Whether a tape and the plain update have different bits after some steps."""
    tape, plain = Tape(made, np.dtype(dtype)), Plain(made, dtype)
    (one, its), (other, theirs) = (fresh(made, dtype, size) for _ in range(2))
    rng = np.random.default_rng(steps)
    with np.errstate(all="ignore"):
        for _ in range(steps):
            gradient = (rng.normal(size=size) * 3).astype(dtype)
            tape.run(one, gradient, its, plain.rate)
            made.update(plain, other, gradient, theirs)
    found = [one, *its.values()]
    return [each.tobytes() for each in found] != [x.tobytes() for x in (other, *theirs.values())]


@st.composite
def optimizers(draw):
    name = draw(st.sampled_from(RECORDED))
    more = {"momentum": draw(st.sampled_from([0.0, 0.5]))} if name == "sgd" else {}
    return optimizer(
        name,
        {
            "learning_rate": draw(st.sampled_from([0.1, 1.0])),
            "weight_decay": draw(st.sampled_from([0.0, 0.01])),
            "rescale": draw(st.sampled_from([1.0, 0.3])),
            "clip": draw(st.sampled_from([None, 0.7])),
            **more,
        },
    )


@given(
    made=optimizers(),
    dtype=st.sampled_from(DTYPES),
    size=st.sampled_from([1, 7, 8, 9, 40]),
    steps=st.integers(1, 4),
)
def test_a_tape_has_the_bits_of_the_update(made, dtype, size, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update_tape, "BLOCK", 8)
        assert not differs(made, dtype, size, steps)


class Leapfrog(Optimizer):
    """Its rules read what they have just written, return an operand, and use a result twice."""

    name = "leapfrog"
    defaults: ClassVar = {"learning_rate": 0.5}
    arrays = ("speed", "before")
    numbers: ClassVar = ("count",)

    def rules(self, xp):
        return {
            "keep": lambda w: w,
            "count": lambda n: n * 1.5,
            "half": lambda v, g, n: v * 0.5 - g / n,
            "speed": lambda v, h, w: h + v * h - xp.sqrt(xp.abs(h)) * w,
            "move": lambda w, v, h, b, rate: w + (v + h) * rate - b * h,
        }

    def update(self, on, weight, gradient, state):
        on("keep", state["before"], weight)
        count = on("count", state["count"], state["count"])
        half = on("half", None, state["speed"], gradient, count)
        on("speed", state["speed"], state["speed"], half, weight)
        on("move", weight, weight, state["speed"], half, state["before"], on.rate)
        on("keep", state["before"], half)
        on("speed", state["speed"], half, half, state["before"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [5, 8, 21])
def test_results_that_are_used_again_keep_their_memory(dtype, size, monkeypatch):
    monkeypatch.setattr(update_tape, "BLOCK", 8)
    assert not differs(Leapfrog(), dtype, size, 3)


def test_memory_that_is_given_away_too_early_is_found(monkeypatch):
    """The planted bug: a result counts as dead after its first use."""

    def first_uses(self):
        first, idle, found = {}, [], {}
        for number, (_, (*operands, result)) in enumerate(self._block_calls):
            for at in operands:
                if first.setdefault(at, number) == number and at in found:
                    idle.append(found[at])
            if result not in self._given_places:
                found[result] = idle.pop() if idle else np.empty(update_tape.BLOCK, np.float64)
        return list(found.items())

    monkeypatch.setattr(Tape, "_allocated", first_uses)
    assert differs(Leapfrog(), "f8", 21, 3)


def test_a_new_array_for_no_result(monkeypatch):
    """Every call of a run writes to memory that the tape has had before."""
    tape, made = Tape(optimizer("adam", {}), np.dtype("f4")), []
    weight, state = fresh(optimizer("adam", {}), "f4", 10)

    def noted(calls, values):
        for function, places in calls:
            result = function(*[values[at] for at in places])
            made.append(result is None or result is values[places[-1]])

    monkeypatch.setattr(update_tape, "_make", noted)
    tape.run(weight, weight.copy(), state, np.float32(0.1))
    assert made
    assert all(made)


def test_a_call_that_a_tape_cannot_record_is_refused():
    class Sorted(Leapfrog):
        def update(self, on, weight, gradient, state):
            np.sort(weight)

    with pytest.raises(TypeError, match="cannot record sort"):
        Tape(Sorted(), np.dtype("f4"))
