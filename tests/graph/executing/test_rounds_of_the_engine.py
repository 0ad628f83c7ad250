"""What a round costs where the engine runs a block, and what runs beside what."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from helpers.driver.held_devices import engine_behind

import cudasync as cs
from cudasync.driver import memcpy_async
from cudasync.graph import parts
from cudasync.graph.control import execution

PATIENCE_S = 30
STAGED = parts.staged
COPIES, WAITS = "cuMemcpy", ("cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize")


@pytest.fixture
def x():
    return cs.zeros(16, np.float32)


@pytest.fixture
def flag():
    return cs.array(np.array([1], np.int32))


def update(x, flag):
    x[...] = x * 2 + 1
    flag[...] = flag - 1


def update_with_a_function(x, flag):
    update(x, flag)
    cs.engine().push(lambda: None, reads=x, name="look")


def update_behind_a_function(x, flag):
    cs.engine().push(lambda: None, reads=x, name="look")
    update(x, flag)


BODIES = (update, update_with_a_function, update_behind_a_function)


def calls_of(body, rounds, x, flag, without):
    """The driver calls of a launch with so many rounds: copies, waits, and launches of graphs."""
    with cs.graph() as g, g.while_loop(flag):
        body(x, flag)
    with g.instantiate(without=without) as executable:
        executable.launch().wait()
        flag[...] = rounds
        cs.waitall()
        with counted_calls() as calls:
            executable.launch().wait()
            cs.waitall()
    assert flag.numpy().tolist() == [0]

    def count(*kinds):
        return sum(number for name, number in calls.items() if name.startswith(kinds))

    return count(COPIES), count(*WAITS), count("cuGraphLaunch")


@pytest.mark.parametrize("rounds", [1, 2, 7])
@pytest.mark.parametrize("body", BODIES)
def test_a_round_copies_the_flag_once_and_waits_once(body, rounds, x, flag):
    assert calls_of(body, rounds, x, flag, ("conditionals",)) == (rounds + 1, rounds + 1, rounds)


@pytest.mark.parametrize("rounds", [1, 7])
def test_a_round_of_the_driver_copies_nothing_and_waits_for_nothing(rounds, x, flag):
    copies, waits, launches = calls_of(update, rounds, x, flag, ())
    assert (copies, launches) == (0, 1)
    assert waits <= 1


def test_the_copy_of_a_flag_has_the_flags_bytes(x, flag, monkeypatch):
    sizes = []

    def copied(target, source, *, stream, size_bytes):
        sizes.append(size_bytes)
        return memcpy_async(target, source, stream=stream, size_bytes=size_bytes)

    monkeypatch.setattr(execution, "memcpy_async", copied)
    calls_of(update, 3, x, flag, ("conditionals",))
    # Of two launches, with one round and with three.
    assert sizes == [4] * (2 + 4)


@pytest.mark.parametrize("where", ["inside", "behind"])
def test_a_flag_that_a_later_step_changes_is_read_behind_that_step(x, flag, where):
    """The step is a loop of the engine with a flag of its own, or a copy that the engine does."""
    other, one = cs.array(np.array([2], np.int32)), np.zeros(1, np.int32)
    with cs.graph() as g, g.while_loop(flag):
        x += 1
        if where == "inside":
            with g.while_loop(other):
                other -= 1
                flag[...] = 0
        else:
            cs.copy(flag, one)
    with g.instantiate(without=("conditionals", "fusion")) as executable:
        executable.launch()
        assert x.numpy().tolist() == [1] * 16


def beside(device, latch, flag, patience_s):
    """A body whose work on the device is held until its host function has run."""
    x = cs.zeros(4, np.int32)
    with engine_behind(latch):
        with cs.graph() as g, g.cond(flag):
            cs.engine().push(latch.hold, writes=x, device=device)
            cs.engine().push(latch.release, name="release")
        with g.instantiate(without=("conditionals",)) as executable:
            executable.launch().wait(patience_s)


def test_a_host_function_runs_beside_a_device_that_it_does_not_need(device, latch, flag):
    beside(device, latch, flag, PATIENCE_S)


def test_steps_one_after_the_other_are_found(device, latch, flag, monkeypatch):
    """The planted bug: each step is a stage by itself. This one never ends."""
    monkeypatch.setattr(
        parts, "staged", lambda body: [[e] for stage in STAGED(body) for e in stage]
    )
    with pytest.raises(TimeoutError):
        beside(device, latch, flag, 0.1)


def test_a_failed_step_beside_another_harms_only_what_needs_it(flag):
    """A function fails while a device works beside it; both are done once, and the rest follows."""
    x, y, z = (cs.zeros(4, np.int32) for _ in range(3))
    h, began = cs.zeros(4, np.int32, device="cpu"), threading.Event()

    def fails():
        began.set()
        raise ValueError("planned")

    with cs.Engine() as engine, cs.use(engine):
        with cs.graph() as g, g.cond(flag):
            cs.engine().push(fails, writes=h, name="fails")
            x += 1
            y[...] = x * 2
            cs.engine().push(lambda: None, reads=h, writes=z, name="needs it")
        with g.instantiate(without=("conditionals",)) as executable:
            op = executable.launch()
            assert "planned" in str(op.exception(PATIENCE_S))
        assert began.is_set()
        assert (x.numpy().tolist(), y.numpy().tolist()) == ([1] * 4, [2] * 4)
        for each in (h, z):
            with pytest.raises(cs.OpError, match="planned"):
                each.numpy()
        engine.clear_errors()
