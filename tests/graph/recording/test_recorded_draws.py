"""A launch draws the random numbers that the same program draws without a graph."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from random import uniform

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.random import Generator
from cudasync.testing import HostLatch

PLACES = (0, 1, "cpu")
CALLS = {
    "random": lambda g, n, place: g.random(n, device=place),
    "double": lambda g, n, place: g.uniform(-1, 3, (n, 2), dtype="f8", device=place),
    "normal": lambda g, n, place: g.normal(1.5, 0.3, n, device=place),
    "integers": lambda g, n, place: g.integers(-5, 1000, n, device=place),
    "anew": lambda g, n, place: g.integers(0, 3 << 62, n, dtype="u8", device=place),
    "permutation": lambda g, n, place: g.permutation(n, device=place),
}
draws = st.lists(
    st.tuples(
        st.sampled_from(sorted(CALLS)),
        st.sampled_from([0, 1, 5, 300]),
        st.sampled_from(PLACES),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=4,
)
# What the program does with its generator between launches.
between = st.lists(st.sampled_from(["nothing", "draw", "read", "set", "elsewhere"]), max_size=4)


def place_of(place):
    return place if place == "cpu" else place % cs.device_count()


def drawn(g, program, rounds):
    """Each draw, `rounds(n)` times, into an array of its own."""
    found = []
    for name, n, place, times in program:
        where = place_of(place)
        found.append(rounds(times, lambda g=g, n=n, w=where, f=CALLS[name]: f(g, n, w)))
    return found


def step(g, what):
    """The answer of the generator to what the program does between launches."""
    match what:
        case "draw":
            return g.random(3).numpy().tolist()
        case "elsewhere":
            return g.random(3, device="cpu").numpy().tolist()
        case "read":
            return g.state
        case "set":
            g.state = {"seed": 8, "counter": (1 << 64) - 4}
    return None


def eagerly(program, steps):
    g, found = Generator(3), []
    for what in [None, *steps]:
        found.append(step(g, what))
        for name, n, place, times in program:
            for _ in range(times):
                last = CALLS[name](g, n, place_of(place))
            found.append(last.numpy().tolist())
    return [*found, g.state]


def by_launches(program, steps):
    g = Generator(3)
    made, targets = [], [CALLS[name](Generator(0), n, place_of(p)) for name, n, p, _ in program]
    with cs.graph() as recorded:
        for (name, n, place, times), target in zip(program, targets, strict=True):
            with recorded.repeat(times):
                if n:
                    target[...] = CALLS[name](g, n, place_of(place))
    executable = recorded.instantiate()
    for what in [None, *steps]:
        made.append(step(g, what))
        executable.launch()
        made += [each.numpy().tolist() for each in targets]
    return [*made, g.state]


def by_calls(program, steps):
    g, found = Generator(3), []

    @cs.graph_function
    def f():
        made = []
        for name, n, place, times in program:
            for _ in range(times):
                last = CALLS[name](g, n, place_of(place))
            made.append(last)
        return made

    for what in [None, *steps]:
        found.append(step(g, what))
        found += [each.numpy().tolist() for each in f()]
    assert f.traces == 1
    return [*found, g.state]


@given(draws, between)
def test_launches_draw_what_the_program_draws(program, steps):
    assert by_launches(program, steps) == eagerly(program, steps)


@given(draws, between)
def test_calls_of_a_graph_function_draw_what_the_function_draws(program, steps):
    assert by_calls(program, steps) == eagerly(program, steps)


@pytest.mark.parametrize("place", [0, "cpu"])
def test_a_loop_that_an_array_ends_draws_in_each_round(place):
    g, twin = Generator(3), Generator(3)
    left, total = cs.array([3], device=place), xp.zeros(4, device=place)
    with cs.graph() as recorded:
        with recorded.while_loop(left):
            total += g.random(4, device=place)
            left -= 1
        with recorded.cond(left):
            total += g.random(4, device=place)
    step = recorded.instantiate()
    expected = xp.zeros(4, device=place)
    for rounds in (3, 0, 2):
        left[...] = rounds
        step.launch()
        for _ in range(rounds):
            expected += twin.random(4, device=place)
        assert total.numpy().tolist() == expected.numpy().tolist()
    assert g.state == twin.state == {"seed": 3, "counter": 20}


def test_graphs_within_graphs_and_several_graphs_share_the_counter():
    g, x, y, z = Generator(3), xp.zeros(3), xp.zeros(3, device="cpu"), xp.zeros(3)
    with cs.graph() as inner:
        x[...] = g.random(3)
    other = inner.instantiate()
    with cs.graph() as outer:
        y[...] = g.random(3, device="cpu")
        inner.launch()
        other.launch()
        z[...] = g.random(3)
    both = outer.instantiate()
    whole = iter(Generator(3).random(30).numpy().reshape(-1, 3).tolist())
    both.launch()
    first, _, second, last = (next(whole) for _ in range(4))
    assert [each.numpy().tolist() for each in (y, x, z)] == [first, second, last]
    other.launch()
    assert x.numpy().tolist() == next(whole)
    assert g.random(3).numpy().tolist() == next(whole)
    both.launch()
    assert y.numpy().tolist() == next(whole)
    assert g.state["counter"] == 3 * 10


def test_arguments_measurements_and_streams():
    g, a, b = Generator(3), xp.zeros(2), xp.ones(2)
    with cs.graph() as recorded:
        x = recorded.argument("x", a)
        x += g.random(2) * recorded.argument("k", np.float32(2))
    step = recorded.instantiate()
    whole = Generator(3).random(8).numpy().reshape(-1, 2)
    step.launch()
    step.update(x=b, k=4.0)
    step.measure()
    step.launch(cs.Stream())
    assert a.numpy().tolist() == (whole[0] * 2).tolist()
    assert b.numpy().tolist() == (np.float32(1) + whole[1] * 4 + whole[2] * 4).tolist()
    assert g.random(2).numpy().tolist() == whole[3].tolist()


def test_a_warm_launch_needs_nothing_before_it():
    g, x = Generator(3), xp.zeros(4)
    with cs.graph() as recorded:
        x += g.random(4)
    step = recorded.instantiate()
    step.launch()
    cs.waitall()
    with counted_calls() as calls:
        step.launch()
        cs.waitall()
    assert calls["cuGraphLaunch"] == 1
    assert not [name for name in calls if "Memcpy" in name or "LaunchKernel" in name]


def test_a_draw_behind_a_launch_does_not_wait():
    g, latch, x = Generator(3), HostLatch(), xp.zeros(4, device="cpu")
    with cs.graph() as recorded:
        x += g.random(4, device="cpu")
    step = recorded.instantiate()
    cs.engine().push(latch.wait, writes=[x])
    step.launch()
    later = g.random(4, device="cpu")
    latch.release()
    assert [*x.numpy(), *later.numpy()] == Generator(3).random(8).numpy().tolist()


def test_threads_that_draw_and_launch_share_no_number():
    g, found = Generator(5), []

    def graphs():
        x = xp.zeros(7, dtype="f8", device="cpu")
        with cs.graph() as recorded:
            x[...] = g.random(7, dtype="f8", device="cpu")
        step = recorded.instantiate()
        for _ in range(15):
            step.launch()
            found.append(x.copy())

    def eager():
        for _ in range(15):
            found.append(g.random(7, dtype="f8", device="cpu"))

    threads = [threading.Thread(target=each) for each in (graphs, eager, graphs)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    drawn = np.sort(np.concatenate([each.numpy() for each in found]))
    assert drawn.tolist() == np.sort(Generator(5).random(315, dtype="f8").numpy()).tolist()


def test_copies_of_a_generator_go_on_behind_its_launches():
    g, x = Generator(3), xp.zeros(2)
    with cs.graph() as recorded:
        x[...] = g.random(2)
    recorded.instantiate().launch()
    for each in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g):
        assert each.random(2).numpy().tolist() == Generator(3).random(4).numpy()[2:].tolist()


def test_a_generator_that_is_made_or_set_in_a_recording_begins_anew_each_time():
    g, x, y = Generator(7), xp.zeros(3), xp.zeros(3, device="cpu")
    with cs.graph() as recorded:
        own = Generator(3)
        with recorded.repeat(2):
            x[...] = own.random(3)
        g.state = {"seed": 4, "counter": 6}
        y[...] = g.random(3, device="cpu")
    step = recorded.instantiate()
    for _ in range(2):
        step.launch()
        assert x.numpy().tolist() == Generator(3).random(6).numpy()[3:].tolist()
        assert y.numpy().tolist() == Generator(4).random(9).numpy()[6:].tolist()
        assert g.state == {"seed": 4, "counter": 9}
        g.random(5)


def test_what_a_recording_cannot_know_is_refused():
    g = Generator(3)
    with cs.graph():
        with pytest.raises(cs.RecordingError, match="without a seed"):
            Generator()
        with pytest.raises(cs.RecordingError, match=r"after exe\.launch"):
            _ = g.state
        with pytest.raises(cs.RecordingError, match=r"after exe\.launch"):
            copy.copy(g)
    x = xp.ones(3)
    drawing = cs.elementwise(lambda x: x + g.random(()))
    for _ in range(2):
        with pytest.raises(TypeError, match="draw before the call"):
            drawing(x)
    assert g.state == {"seed": 3, "counter": 0}


def test_a_count_that_failed_is_told_until_the_state_is_set():
    g, flag, x = Generator(3), cs.array([1], device="cpu"), xp.zeros(2, device="cpu")

    def red():
        raise ValueError("red")

    with cs.graph() as recorded:
        cs.engine().push(red, writes=flag)
        with recorded.cond(flag):
            x[...] = g.random(2, device="cpu")
    with cs.Engine() as engine:
        recorded.instantiate().launch()
        # Nobody knows whether it drew.
        with pytest.raises(cs.OpError, match="red"):
            _ = g.state
        g.state = {"seed": 3, "counter": 2}
        assert g.random(2).numpy().tolist() == Generator(3).random(4).numpy()[2:].tolist()
        engine.clear_errors()


def test_a_reset_of_the_device_takes_the_count_until_the_state_is_set():
    device = cs.device_count() - 1
    g, x = Generator(3), xp.zeros(2, device=device)
    with cs.graph() as recorded:
        x[...] = g.random(2, device=device)
    recorded.instantiate().launch()
    cs.waitall()
    cs.Device(device).reset()
    with pytest.raises(cs.ClosedError, match="reset"):
        _ = g.state
    g.state = {"seed": 3, "counter": 0}
    y = xp.zeros(2, device=device)
    with cs.graph() as again:
        y[...] = g.random(2, device=device)
    again.instantiate().launch()
    assert y.numpy().tolist() == Generator(3).random(2).numpy().tolist()
    assert g.state == {"seed": 3, "counter": 2}


OTHERS = {
    "numpy": lambda: float(np.random.rand()),
    "a generator of NumPy": (lambda g: lambda: g.random())(np.random.default_rng(3)),
    "an old one": (lambda g: lambda: g.rand())(np.random.RandomState(3)),
    "random": lambda: random.random(),
    "a function of random": lambda: uniform(1, 2),
    "a Random": (lambda g: lambda: g.gauss(1, 2))(random.Random(3)),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("decorate", [cs.elementwise, cs.graph_function])
def test_random_numbers_of_other_libraries_are_not_drawn_in_a_trace(name, decorate):
    draw = OTHERS[name]
    f = decorate(lambda x: x * draw())
    for _ in range(2):
        with pytest.raises(cs.RecordingError, match=r"draws from .* cs\.random\.Generator"):
            f(xp.ones(2, device="cpu"))
    # What it names and does not draw from is as good as any.
    assert decorate(lambda x: x * (2 if OTHERS else draw()))(xp.ones(2)).numpy().tolist() == [2, 2]
