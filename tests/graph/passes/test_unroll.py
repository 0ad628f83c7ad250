"""Few rounds are written out: a `repeat` costs what the same work without a block costs."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from helpers.engine_programs.steps import Setting
from helpers.graphs.control_programs import Block, Do, control_differences, control_programs
from helpers.repository.searches import shown_by
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Flaky

import cudasync as cs
from cudasync import xp
from cudasync.graph.control import Repeat
from cudasync.graph.passes import unroll
from cudasync.graph.placement.memory_partition import everything

TIMES = 10
# Launches whose work is counted.
LAUNCHES = 5


def update(u):
    u[...] = xp.tanh(u * 2 + 1) * u + xp.exp(-u) * 0.5


def array(device=0, size=16):
    return cs.array(np.linspace(-1, 1, size, dtype=np.float32), device=device)


def both(record):
    """Ten calls of `record` in a `repeat`, and written out."""
    with cs.graph() as looping, looping.repeat(TIMES):
        record()
    with cs.graph() as written:
        for _ in range(TIMES):
            record()
    return looping, written


def work(graph, without):
    """The ops of a launch, its driver calls, and the nodes of the executable."""
    with graph.instantiate(without=without) as executable:
        executable.launch().wait()
        cs.waitall()
        launches = [launch_work(executable) for _ in range(LAUNCHES)]
        names = [node.name for node in everything(executable.nodes)]
    # On a busy machine one may take a call more.
    return *min(launches), names


def launch_work(executable):
    with counted_calls() as calls, cs.profile() as profile:
        executable.launch()
        cs.waitall()
    kinds = ("cuGraphLaunch", "cuLaunch", "cuMemcpy", "cuMemset")
    enqueued = sum(count for name, count in calls.items() if name.startswith(kinds))
    return len(profile.records), enqueued


def on_device(x):
    update(x)


def on_cpu(x):
    h = xp.asarray(x, device="cpu")
    update(h)


def with_a_function(x):
    update(x)
    cs.engine().push(lambda: None, reads=x, name="look")


def with_a_copy(x):
    cs.copy(x[:4], x[4:8])
    update(x)


@pytest.mark.parametrize("without", [(), ("conditionals",)], ids=["device", "engine"])
@pytest.mark.parametrize("body", [on_device, on_cpu, with_a_function, with_a_copy])
def test_ten_updates_in_a_repeat_take_what_they_take_written_out(body, without):
    """The same nodes, ops, and driver calls: so the same time, but for the order of two lines."""
    x, y = array(), array()
    looping, _ = both(lambda: body(x))
    _, written = both(lambda: body(y))
    assert work(looping, without) == work(written, without)
    assert x.numpy().tobytes() == y.numpy().tobytes()


def test_many_rounds_of_a_device_are_joined_and_the_rest_comes_first():
    x = cs.zeros(4, np.int32)
    with cs.graph() as g, g.repeat(1003):
        x += 1
    with g.instantiate() as executable:
        *first, block = executable.nodes
        assert (len(first), block.control.times, len(block.control.bodies[0])) == (11, 31, 32)
        assert block.control.name == "repeat(1003)"
        assert "unroll: 32 rounds joined" in executable.report()
        executable.launch()
        assert x.numpy().tolist() == [1003] * 4


@pytest.mark.parametrize("times", [0, 1, 2, 3, 31, 32, 33, 128, 129, 1000])
def test_any_number_of_rounds_is_right(times):
    x = cs.zeros(4, np.int64)
    with cs.graph() as g:
        with g.repeat(times):
            x *= 3
            x += 1
            x %= 1009
        with g.repeat(2), g.repeat(times):
            x += 1
    with g.instantiate() as executable:
        executable.launch()
    value = 0
    for _ in range(times):
        value = (value * 3 + 1) % 1009
    assert x.numpy().tolist() == [value + 2 * times] * 4


def test_a_function_that_is_captured_is_called_once():
    x, calls = cs.zeros(4, np.int32), []

    def enqueue(stream):
        calls.append(1)
        cs.memset_async(x, np.int32(len(calls)), stream=stream)

    with cs.graph() as g, g.repeat(3):
        cs.engine().push(enqueue, writes=x, device=0)
    with g.instantiate() as executable:
        executable.launch()
        assert x.numpy().tolist() == [1] * 4
    assert calls == [1]


def test_a_failure_says_in_which_round_it_was_also_if_rounds_are_written_out():
    rounds = []

    def fails():
        rounds.append(1)
        if len(rounds) == 4:
            raise ValueError("four")

    x = cs.Var("x")
    with cs.Engine() as engine, cs.use(engine):
        with cs.graph() as g, g.repeat(2), g.repeat(3):
            cs.engine().push(fails, writes=x, name="fails")
        executable = g.instantiate()
        assert not any(node.control for node in executable.nodes)
        said = r"round 1 of repeat\(2\), round 0 of repeat\(3\), node 0 \(fails\), .*test_unroll"
        with pytest.raises(cs.OpError, match=said):
            executable.launch().wait()
        assert len(rounds) == 6
        engine.clear_errors()


def test_messages_number_the_rounds_of_the_recording():
    loop = Repeat(31, joined=32, before=11)
    assert loop.name == "repeat(1003)"
    assert (loop.said_of(0), loop.said_of(30)) == (
        "rounds 11 to 42 of repeat(1003)",
        "rounds 971 to 1002 of repeat(1003)",
    )
    assert Repeat(3).said_of(2) == "round 2 of repeat(3)"


def test_what_the_pass_did_is_said():
    x = array()
    looping, _ = both(lambda: update(x))
    report = looping.instantiate().report()
    assert "unroll: 1 blocks written out, rounds of 0 blocks joined; nodes 1 -> 10" in report
    (line,) = [each for each in report.splitlines() if each.startswith("block repeat(10)")]
    assert "nodes 9 -> 10" in line
    assert line.endswith("unroll: all 10 rounds written out")
    assert "unroll: left out" in looping.instantiate(without=("unroll",)).report()


ROUNDS = unroll._rounds


def _one_less(node, control, count):
    made = ROUNDS(node, control, count)
    return made[: -len(control.bodies[0])] if made and made[-1].control is None else made


def _without_the_rest(node, control, count):
    return ROUNDS(node, control, count)[-1:]


PLANTED = {
    "a round less": (_one_less, 128, 32),
    "no rest": (_without_the_rest, 0, 2),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug, monkeypatch):
    wrong, most, joined = PLANTED[bug]
    monkeypatch.setattr(unroll, "MOST", most)
    monkeypatch.setattr(unroll, "MOST_JOINED", joined)
    program = (Block("repeat", 3, ((Do("add", "d0", 1),),)),)
    assert not control_differences(program, Setting())
    monkeypatch.setattr(unroll, "_rounds", wrong)

    @hypothesis_settings(
        max_examples=300,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
    )
    @shown_by(program)
    @given(control_programs(names=("d0", "d1", "df")))
    def search(program):
        assert not control_differences(program, Setting(), 1)

    # Flaky: memory that is used again may hold the right numbers by chance.
    with pytest.raises((AssertionError, Flaky)):
        search()
