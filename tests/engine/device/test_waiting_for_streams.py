"""A wait for all asks the last op on each stream: it costs what is waited for, and no fence."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from helpers.concurrency import freeze_device_scenarios as scenarios
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer, is_library
from helpers.concurrency.freeze_test import count_points, freeze_at
from helpers.driver.call_counts import counted_calls
from helpers.engine_programs.runner import kernels

import cudasync as cs
from cudasync.engine.device import completion
from cudasync.engine.log.combiner import COMBINER
from cudasync.testing import Latch

ROUNDS = 5
N = 8


@pytest.fixture
def engine():
    with cs.Engine(streams=4) as engine, cs.use(engine):
        yield engine


def chains(count):
    """Launches: the n-th comes after the n-th before `count`."""
    one, n = np.int32(1), np.uint32(N)
    mix = kernels(cs.Device(0))["mix"]
    arrays = [cs.zeros(N, np.int32) for _ in range(count)]
    return [mix.prepare(grid=1, block=32, args=(x, x, one, n, one, one)) for x in arrays]


def wait_cost(engine, launches, count):
    """The bytecodes of a wait behind so many launches that are over."""
    found = []
    for _ in range(ROUNDS):
        for number in range(count):
            launches[number % len(launches)].push()
        cs.Device(0).synchronize()
        freezer = Freezer(None, is_library)
        with freezer:
            engine.waitall()
        found.append(freezer.points)
    return min(found)


@pytest.mark.usefixtures("tracing_ends")
@pytest.mark.parametrize("count", [1, 4])
def test_a_wait_costs_what_is_waited_for(engine, count):
    launches = chains(count)
    # Their events and streams are made.
    wait_cost(engine, launches, 8)
    assert wait_cost(engine, launches, 0) <= 250
    costs = [wait_cost(engine, launches, number) for number in (8, 16, 24)]
    for fewer, more in pairwise(costs):
        assert more - fewer <= 8 * 55


def test_a_wait_asks_each_busy_stream_once_and_makes_no_fence(engine):
    launches = chains(3)
    for _ in range(4):
        for launch in launches:
            launch.push()
    cs.Device(0).synchronize()
    end, busy = COMBINER.log.end, len(engine._issuer.tails())
    assert busy >= 3
    with counted_calls() as calls:
        engine.waitall()
    assert COMBINER.log.end == end
    assert calls["cuEventQuery"] == busy
    with counted_calls() as calls:
        engine.waitall()
    assert not calls


@pytest.mark.parametrize("timeout", [None, PATIENCE_S])
def test_a_wait_for_long_work_makes_no_fence(engine, timeout):
    """It sleeps until the last op on each stream is over."""
    device = cs.Device(0)
    latches = [Latch(device) for _ in range(2)]
    ops = [engine.push(each.hold, writes=[cs.Var()], device=device) for each in latches]
    for op in ops:
        while op._point is None:
            COMBINER.plan()
    end = COMBINER.log.end
    with pytest.raises(TimeoutError):
        engine.waitall(0.01)
    for latch in latches:
        latch.release()
    made = COMBINER.log.end
    engine.waitall(timeout)
    # The fence of the wait that was given up.
    assert (made - end, COMBINER.log.end - made) == (1, 0)
    assert all(op.finished for op in ops)


@pytest.mark.parametrize("kind", ["host", "nested"])
def test_a_wait_for_all_waits_for_ops_of_any_kind(engine, kind):
    """Ops that a running op pushes meanwhile, too."""
    ran, (launch,) = [], chains(1)

    def push():
        ran.append(1)
        launch.push()
        engine.push(lambda: ran.append(2))

    for _ in range(50):
        ran.clear()
        launch.push()
        engine.push(push if kind == "nested" else lambda: ran.extend((1, 2)))
        engine.waitall()
        assert ran == [1, 2]
        assert all(op.finished for op in list(engine._registered))


@pytest.mark.loses_device
def test_a_fault_between_the_question_and_the_end_of_the_range(engine, monkeypatch):
    """The driver said that the range is over; then a later kernel loses the device.

    Ops that were over may fail, as with a real device; none is lost, and the wait raises.
    """
    device = cs.Device(0)
    x, one, n = cs.zeros(N, np.int32), np.int32(1), np.uint32(N)
    known = kernels(device)
    launches = [known["mix"].prepare(grid=1, block=32, args=(x, x, one, n, one, one))] * 4
    ops = [launch.push() for launch in launches]
    device.synchronize()
    advance_all, lost = completion.advance_all, []

    def lose(issuer, streams, reached):
        if not lost:
            lost.append(known["wild"][1, 32](x))
            lost[0].exception(PATIENCE_S)
        advance_all(issuer, streams, reached)

    monkeypatch.setattr(completion, "advance_all", lose)
    with pytest.raises(cs.OpError, match="wild"):
        engine.waitall()
    assert all(op.finished for op in [*ops, *lost])
    assert not engine._registered
    device.reset()
    engine.clear_errors()


@pytest.mark.usefixtures("tracing_ends", "replaced_soon")
def test_an_outcome_that_two_threads_take_for_their_own_is_found(monkeypatch):
    """The planted bug: all threads say the same, so each believes that its word counts."""
    text = Path(completion.__file__).read_text(encoding="utf-8")
    planted = text.replace("said = (failure,)\n    give_back", "said = (None,)\n    give_back")
    assert planted != text
    space = dict(vars(completion))
    exec(compile(planted, completion.__file__, "exec"), space)
    monkeypatch.setattr(completion, "_end_all", space["_end_all"])

    def suspend_everywhere():
        count = count_points(scenarios.FinishesRange)
        # It shows near here: measured.
        for at in sorted(range(count), key=lambda at: abs(at - count * 4 // 9)):
            freeze_at(scenarios.FinishesRange, at, PATIENCE_S)

    with pytest.raises((TypeError, AssertionError)):
        suspend_everywhere()
