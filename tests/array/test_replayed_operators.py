"""Loops of operators that are replayed: their results, their memory, and what they cost."""

from __future__ import annotations

import gc
import operator
import sys

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer, end_tracing, is_library
from helpers.driver.call_counts import counted_calls
from helpers.engine_programs.loops import eager_replay
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.elementwise import plan
from cudasync.array.memory import pool
from cudasync.engine.replay import learning, sequence
from cudasync.engine.replay.tape import LOCAL

# In the library, with the issue of its run, on Python 3.11. One that is pushed has 2,700.
MOST_BYTECODES = 490
LENGTH = 64


@pytest.fixture(autouse=True)
def no_launch_is_too_slow(monkeypatch):
    """A busy machine may suspend this thread between any two launches."""
    monkeypatch.setattr(sequence, "HOLD_S", 1e9)


@pytest.fixture
def engine():
    LOCAL.tape.forget()
    with cs.Engine(replay=True) as made:
        yield made
    LOCAL.tape.forget()


class Temporaries:
    """A round of ten operations, whose results are names that the next round binds again."""

    def __init__(self):
        self.a, self.b = (xp.full(LENGTH, value, dtype=np.float32) for value in (1.0, 2.0))
        self.x = xp.zeros(LENGTH, dtype=np.float32)
        self.rounds = 0

    def __call__(self):
        self.rounds += 1
        self.t = self.a * 0.5
        self.u = self.b + self.t
        self.v = self.u - self.a
        self.w = self.v * self.b
        self.y = self.w + self.u
        self.z = self.y * 0.1
        self.q = self.z - self.v
        self.r = self.q + self.t
        self.s = self.r * 0.9
        self.x = self.x * 0.5 + self.s

    def wanted(self):
        """What NumPy computes."""
        a, b, half, tenth = (np.full(LENGTH, e, np.float32) for e in (1.0, 2.0, 0.5, 0.1))
        x = np.zeros(LENGTH, np.float32)
        t = a * half
        u = b + t
        v = u - a
        s = ((v * b + u) * tenth - v + t) * np.float32(0.9)
        for _ in range(self.rounds):
            x = x * half + s
        return x


@pytest.mark.parametrize("waits", [0, 1, 3])
def test_a_loop_with_temporaries_is_replayed(engine, waits):
    loop = Temporaries()
    for number in range(60):
        loop()
        if waits and not number % waits:
            engine.waitall(PATIENCE_S)
    engine.waitall(PATIENCE_S)
    before = engine.statistics()
    for number in range(20):
        loop()
        if waits and not number % waits:
            engine.waitall(PATIENCE_S)
    engine.waitall(PATIENCE_S)
    after = engine.statistics()
    assert after.matched - before.matched >= 20 * 11 - 2, engine.replay_report()
    np.testing.assert_array_equal(loop.x.numpy(), loop.wanted())


def test_the_period_is_of_two_rounds_at_most(engine):
    loop = Temporaries()
    for _ in range(60):
        loop()
    assert "replays 22 launches" in engine.replay_report()
    with counted_calls() as calls:
        for _ in range(20):
            loop()
        engine.waitall(PATIENCE_S)
    # Runs of two rounds; the first and the last may be parts.
    assert calls["cuGraphLaunch"] >= 9
    assert calls["cuLaunchKernel"] < 22
    assert not calls["cuMemAlloc"] + calls["cuMemAllocAsync"]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="bytecodes are those of Python 3.11")
def test_an_operation_of_a_run_costs_few_bytecodes(engine):
    """Two rounds, with the issue of their runs."""
    loop = Temporaries()
    for _ in range(60):
        loop()
    costs = []
    for _ in range(5):
        freezer = Freezer(None, is_library)
        try:
            with freezer:
                loop()
                loop()
        finally:
            end_tracing()
        costs.append(freezer.points / 22)
    engine.waitall(PATIENCE_S)
    assert sorted(costs)[2] <= MOST_BYTECODES


def test_a_rate_that_changes_is_let_change(engine):
    x, y = (np.linspace(0, 1, LENGTH, dtype=np.float32) for _ in range(2))
    given = xp.asarray(x)
    for number in range(140):
        given = given - given * (0.1 / (number + 1))
        y = y - y * np.float32(0.1 / (number + 1))
    report = engine.replay_report()
    assert "with other numbers each time" in report
    np.testing.assert_array_equal(given.numpy(), y)


def test_views_products_reductions_and_scans_are_replayed(engine):
    rng = np.random.default_rng(0)
    first = rng.normal(size=(16, 16)).astype(np.float32) * 0.1
    second = rng.normal(size=(32, 16)).astype(np.float32)

    def trained():
        weights, given = xp.asarray(first), xp.asarray(second)
        for _ in range(60):
            off = given @ weights - given
            loss = xp.mean(off * off)
            weights = weights - (given.T @ off) * 0.001
            sums = xp.cumulative_sum(off, axis=0)
            weights = weights - sums[:16] * 0.001
            largest = xp.argmax(off)
        return [each.numpy() for each in (weights, loss, largest)]

    replayed = trained()
    assert engine.statistics().matched > 200, engine.replay_report()
    with cs.Engine() as plain, cs.use(plain):
        wanted = trained()
    for one, other in zip(replayed, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_memory_that_was_given_back_is_taken_anew(engine):
    """The blocks of a round are gone: its launches are pushed as ever, until others are known."""
    loop = Temporaries()
    for _ in range(60):
        loop()
    engine.waitall(PATIENCE_S)
    kept = loop.x
    loop.__dict__ = {"a": loop.a, "b": loop.b, "x": loop.x, "rounds": loop.rounds}
    gc.collect()
    cs.empty_cache()
    for _ in range(120):
        loop()
    assert "replays" in engine.replay_report()
    np.testing.assert_array_equal(loop.x.numpy(), loop.wanted())
    assert kept.numpy().shape == (LENGTH,)


def test_poison_reaches_only_what_needs_the_failed_data(engine):
    broken, whole = Temporaries(), Temporaries()
    for _ in range(60):
        broken()
        whole()
    engine.waitall(PATIENCE_S)
    assert "replays" in engine.replay_report()
    engine.push(lambda: 1 / 0, writes=[broken.x], name="fails")
    for _ in range(2):
        broken()
        whole()
    np.testing.assert_array_equal(whole.x.numpy(), whole.wanted())
    assert broken.s.numpy().shape == (LENGTH,)
    with pytest.raises(cs.OpError, match="fails"):
        broken.x.numpy()
    engine.clear_errors()


def test_independent_chains_keep_their_overlap(engine):
    """Their blocks are their own, also once the loop is known."""
    loops = [Temporaries() for _ in range(2)]
    for _ in range(60):
        for each in loops:
            each()
    regions = [{each.t.region, each.u.region, each.x.region} for each in loops]
    assert not regions[0] & regions[1]
    for each in loops:
        np.testing.assert_array_equal(each.x.numpy(), each.wanted())


def test_a_loop_goes_on_on_another_engine(engine):
    """Its launches are pushed onto that engine, and wait for the runs of the one before."""
    loop = Temporaries()
    with eager_replay(), cs.Engine(replay=True) as other:
        for turn in range(6):
            with cs.use(other if turn % 2 else engine):
                for _ in range(10):
                    loop()
                loop.x.wait(PATIENCE_S)
        assert engine.statistics().matched
        assert other.statistics().matched
    np.testing.assert_array_equal(loop.x.numpy(), loop.wanted())


def test_another_engine_waits_for_a_run(engine):
    loop = Temporaries()
    for _ in range(60):
        loop()
    assert "replays" in engine.replay_report()
    with cs.Engine() as other, cs.use(other):
        fence = other.push(lambda: None, reads=[loop.x, loop.s])
        fence.wait(PATIENCE_S)
        loop.t.wait(PATIENCE_S)
    np.testing.assert_array_equal(loop.x.numpy(), loop.wanted())


def test_a_recording_keeps_the_memory_that_it_uses(engine):
    """Launches that are learnt let go of memory of the pool; nodes of a graph do not."""
    a = xp.asarray(np.arange(8, dtype=np.float32))
    x = xp.zeros(16, dtype=np.float32)
    twice = a * 2.0
    with cs.graph() as recorded:
        xp.add(twice, 1.0, out=x[::2])
    executable = recorded.instantiate()
    del twice, recorded
    gc.collect()
    others = [a * 0.0 for _ in range(20)]
    executable.launch()
    np.testing.assert_array_equal(x.numpy()[::2], np.arange(8) * 2 + 1)
    assert len(others) == 20


OPERATIONS = (operator.add, operator.sub, operator.mul, xp.maximum, xp.minimum)
NAMES = range(4)
# Which name is bound, by which operation of which names, and how: anew, in place, with a number
# that is the same or another in each round, as the sum of a view.
steps = st.tuples(
    st.sampled_from(NAMES),
    st.integers(0, len(OPERATIONS) - 1),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.sampled_from(["new", "new", "new", "in place", "number", "changing", "view", "sum", "drop"]),
)
# In which round the thread waits, reads, or gives memory back.
events = st.lists(st.tuples(st.integers(0, 19), st.sampled_from(["wait", "read", "trim", "push"])))


def played(body, happen):
    """The values of all names after 20 rounds, and what was read in between."""
    names = {each: xp.asarray(np.arange(8, dtype=np.float32) % (each + 2)) for each in NAMES}
    said = []
    for number in range(20):
        for target, operation, one, other, kind in body:
            function = OPERATIONS[operation]
            first, second = names[one], names[other]
            if kind == "in place":
                names[target] += second
            elif kind == "number":
                names[target] = function(first, 0.5)
            elif kind == "changing":
                names[target] = function(first, float(number % 7))
            elif kind == "view":
                names[target] = xp.concat([function(first[4:], second[:4]), first[:4]])
            elif kind == "sum":
                names[target] = first - xp.sum(second) * 0.125
            elif kind == "drop":
                names[target] = first
            else:
                names[target] = function(first, second)
            # Bounded, whatever the rounds multiply.
            names[target] = xp.minimum(xp.maximum(names[target], -9.0), 9.0)
        for at, what in happen:
            if at != number:
                continue
            if what == "wait":
                cs.waitall(PATIENCE_S)
            elif what == "read":
                said.append(names[0].numpy())
            elif what == "trim":
                cs.empty_cache()
            else:
                cs.engine().push(lambda: None, reads=[names[1]])
    return [*said, *(each.numpy() for each in names.values())]


@given(st.lists(steps, min_size=1, max_size=5), events)
def test_any_loop_gives_what_it_gives_without_replay(body, happen):
    with cs.Engine() as plain, cs.use(plain):
        wanted = played(body, happen)
    with eager_replay(), cs.Engine(replay=True) as engine, cs.use(engine):
        found = played(body, happen)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_results_with_other_memory_are_found(engine, monkeypatch):
    """The planted bug: an operation joins whatever memory its result has."""
    usual = plan.taker

    def of_operands(values, *more, **named):
        takes = usual(values, *more, **named)
        last = values[-1]

        def of_any_result(args):
            return takes((*args[:-1], last))

        return of_any_result

    monkeypatch.setattr(plan, "taker", of_operands)
    loop = Temporaries()
    for _ in range(60):
        loop()
        if "replays" in engine.replay_report():
            break
    # From now on results have whatever memory is idle.
    monkeypatch.setattr(pool.Source, "take", lambda self, *_: _take(self))
    for _ in range(4):
        loop()
    assert (loop.x.numpy() != loop.wanted()).any()


_take = pool.Source.take


def test_rounds_are_named_by_role():
    """Equal rounds on other memory are equal; a launch that reads something else is not."""
    launches = learning.Launches()
    code = object()
    for start in range(0, 1000, 100):
        one, other = (start, start + 8), (start + 10, start + 18)
        launches.add(("f", code, 1), (), ((), (), (one,)), object, has_waited=False)
        launches.add(("g", code, 2), (), ((one,), (), (other,)), object, has_waited=False)
    assert launches.recent == [0, 1] * 10
    launches.add(("g", code, 2), (), ((one,), (), ((5, 7),)), object, has_waited=False)
    assert launches.recent[-1] == 2


def test_structs_are_not_learnt_as_numbers():
    launches = learning.Launches()
    for each in (np.void(b"12"), np.str_("x"), b"12"):
        launches.add(("f", None, 1), (each, np.int32(3)), ((), (), ()), None, has_waited=False)
    assert launches.recent == [0, 0, 0]
