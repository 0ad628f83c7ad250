"""What a round costs where the engine runs a block, and what runs beside what."""

from __future__ import annotations

import threading
from contextlib import ExitStack, nullcontext

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from helpers.driver.held_devices import engine_behind
from helpers.fuzzing.search import first_difference
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.driver import memcpy_async
from cudasync.graph import parts
from cudasync.graph.control import execution

PATIENCE_S = 30
NEEDED = parts.needed
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


def in_a_row(segments):
    """The planted bug: each part of a round waits for the part before it."""
    return [(at - 1,) if at else () for at in range(len(segments))]


def in_stages(segments):
    """The planted bug: each part of a round waits for all parts of all earlier stages."""
    stages: list[int] = []
    for needed in NEEDED(segments):
        stages.append(max((1 + stages[each] for each in needed), default=0))
    return [tuple(at for at, one in enumerate(stages) if one < stage) for stage in stages]


def test_steps_one_after_the_other_are_found(device, latch, flag, monkeypatch):
    """This one never ends."""
    monkeypatch.setattr(parts, "needed", in_a_row)
    with pytest.raises(TimeoutError):
        beside(device, latch, flag, 0.1)


def branches(latch, flag, patience_s, *, is_inside):
    """Two branches of three steps, on a device and the host each, of which one is held in its first
    step until the other has come to its end; or both branches are blocks."""
    other = cs.Device(1 % cs.device_count())
    x, y = cs.zeros(4, np.int32), cs.zeros(4, np.int32, device=other)
    g = cs.graph()
    block = (lambda: g.cond(flag)) if is_inside else nullcontext
    with engine_behind(latch):
        with g, g.cond(flag):
            push = cs.engine().push
            with block():
                push(latch.hold, writes=x, device=latch.device)
                push(lambda: None, reads=x, writes=x, name="behind the held one")
                x += 1
            with block():
                y += 1
                push(lambda: None, reads=y, writes=y, name="beside it")
                y += 1
                push(latch.release, reads=y, name="the end")
        with g.instantiate(without=("conditionals",)) as executable:
            executable.launch().wait(patience_s)


needs_two_devices = pytest.mark.skipif(cs.device_count() < 2, reason="no second device")


@needs_two_devices
@pytest.mark.parametrize("is_inside", [False, True])
def test_branches_of_a_body_overlap_through_all_their_steps(latch, flag, is_inside):
    branches(latch, flag, PATIENCE_S, is_inside=is_inside)


@needs_two_devices
@pytest.mark.parametrize("bug", [in_a_row, in_stages])
def test_branches_that_wait_for_each_other_are_found(latch, flag, bug, monkeypatch):
    monkeypatch.setattr(parts, "needed", bug)
    with pytest.raises(TimeoutError):
        branches(latch, flag, 0.1, is_inside=False)


# A step is of a device, or a function of the host; it reads the second array, and updates the
# first. Arrays 0 and 1 are on a device, 2 and 3 on another, 4 to 6 in host memory.
STEPS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 9)), min_size=2, max_size=10
)


PLAIN = ("conditionals", "fusion", "host")


class Held:
    """A body with one step of the host that is held, and what each part has done."""

    def __init__(self, steps, held):
        places = [0, 0, *[1 % cs.device_count()] * 2, "cpu", "cpu", "cpu"]
        self.memory = [cs.zeros(4, np.int32, device=each) for each in places]
        self.flag = cs.array(np.array([1], np.int32), device="cpu")
        self.gate, self.steps = threading.Event(), steps
        self.ran = {index: threading.Event() for index in range(len(steps))}
        self.held = held % len(steps)

    def record(self):
        inner = ExitStack()
        with cs.graph() as g, g.cond(self.flag):
            for index, (to, of, kind) in enumerate(self.steps):
                # Some blocks have several steps.
                if kind == 0:
                    inner.enter_context(g.cond(self.flag))
                self.step(index, self.memory[to], self.memory[of])
                if kind == 9:
                    inner.close()
            inner.close()
        return g

    def step(self, index, target, source):
        if target.device == source.device and self.steps[index][2] % 2 and index != self.held:
            target += source
        else:
            cs.engine().push(self.function(index), reads=source, writes=target, name=str(index))

    def function(self, index):
        def call():
            self.ran[index].set()
            assert index != self.held or self.gate.wait(PATIENCE_S)

        return call


def is_block(part):
    return part.nodes[0].control is not None and part.nodes[0].device is None


def functions_of(part):
    """The numbers of the functions in a part."""
    if is_block(part):
        return {
            each for body in part.work.bodies for one in body.parts for each in functions_of(one)
        }
    return {int(node.name) for node in part.nodes if node.name.isdigit()}


def beside_of(body, held):
    """The functions in parts that do not need the part with the function `held`."""
    inside = [functions_of(part) for part in body.parts]
    (start,) = [at for at, functions in enumerate(inside) if held in functions]
    behind = {start}
    for at, needed in enumerate(NEEDED(body.parts)):
        if not behind.isdisjoint(needed):
            behind.add(at)
    part = body.parts[start]
    own = beside_of(part.work.bodies[0], held) if is_block(part) else set()
    return own.union(*(each for at, each in enumerate(inside) if at not in behind))


def late_steps(steps, held, patience_s=PATIENCE_S):
    """The functions that need nothing of the held one, and wait for it all the same."""
    program = Held(steps, held)
    with (
        cs.Engine(workers=2) as engine,
        cs.use(engine),
        program.record().instantiate(without=PLAIN) as executable,
    ):
        (block,) = executable.parts
        wanted = beside_of(block.work.bodies[0], program.held)
        op = executable.launch()
        try:
            return [each for each in sorted(wanted) if not program.ran[each].wait(patience_s)]
        finally:
            program.gate.set()
            op.wait(PATIENCE_S)


@given(STEPS, st.integers(0, 9))
def test_a_step_waits_for_no_held_step_that_it_does_not_need(steps, held):
    assert not late_steps(steps, held)


@pytest.mark.parametrize("bug", [in_a_row, in_stages])
def test_steps_that_wait_for_a_held_step_are_found(bug, monkeypatch):
    monkeypatch.setattr(parts, "needed", bug)
    late = lambda steps, held: late_steps(steps, held, 0.1)  # noqa: E731
    assert first_difference(late, STEPS, st.integers(0, 9))


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


def failing(message="planned"):
    def fails():
        raise ValueError(message)

    return fails


def test_a_failed_function_of_a_chain_harms_only_what_needs_it():
    """Another executable has made the chains."""
    one, two, three, four = (cs.zeros(4, np.int32, device="cpu") for _ in range(4))
    flag = cs.array(np.array([1], np.int32), device="cpu")
    with cs.Engine() as engine, cs.use(engine):
        with cs.graph() as g:
            push = cs.engine().push
            push(lambda: None, writes=one)
            push(failing(), reads=one, writes=two)
            push(lambda: None, writes=three)
            push(lambda: None, reads=three, writes=four)
        with g.instantiate() as inner:
            assert [len(node.steps) for node in inner.nodes] == [2, 2]
            with cs.graph() as g, g.cond(flag):
                inner.launch()
        with g.instantiate() as executable:
            assert "planned" in str(executable.launch().exception(PATIENCE_S))
        for each in (one, three, four):
            assert each.numpy().tolist() == [0] * 4
        with pytest.raises(cs.OpError, match="planned"):
            two.numpy()
        engine.clear_errors()


def test_of_several_failures_the_first_of_the_program_is_told():
    """The second fails first: its device works beside the function that the first comes after."""
    x, y = (cs.zeros(4, np.int32, device="cpu") for _ in range(2))
    flag, told = cs.array(np.array([1], np.int32), device="cpu"), threading.Event()

    def late():
        assert told.wait(PATIENCE_S)
        raise ValueError("the first of the program")

    def early():
        told.set()
        raise ValueError("the first in time")

    with cs.Engine(pools={"io": 1}) as engine, cs.use(engine):
        with cs.graph() as g, g.cond(flag):
            cs.engine().push(late, writes=x, name="late")
            cs.engine().push(early, writes=y, name="early", pool="io")
        with g.instantiate() as executable:
            error = executable.launch().exception(PATIENCE_S)
        assert "the first of the program" in str(error)
        assert "(late)" in str(error)
        engine.clear_errors()


def test_a_copy_by_itself_that_needs_damaged_data_is_left_out(monkeypatch):
    """It fails nothing: only the function has an error."""
    h, x = cs.zeros(4, np.int32, device="cpu"), cs.zeros(4, np.int32)
    flag, noted = cs.array(np.array([1], np.int32), device="cpu"), []
    note = execution.Run._note

    def noting(run, error, *rest):
        noted.append(str(error))
        note(run, error, *rest)

    monkeypatch.setattr(execution.Run, "_note", noting)
    with cs.Engine() as engine, cs.use(engine):
        with cs.graph() as g, g.cond(flag):
            cs.engine().push(failing(), writes=h, name="fails")
            cs.copy(x, h)
        with g.instantiate() as executable:
            (block,) = executable.parts
            assert [type(part).__name__ for part in block.work.bodies[0].parts][1:] == ["AlonePart"]
            assert "planned" in str(executable.launch().exception(PATIENCE_S))
        assert noted == ["planned"]
        for each in (h, x):
            with pytest.raises(cs.OpError, match="planned"):
                each.numpy()
        engine.clear_errors()
