"""Passes inside of blocks do what they do outside, up to what crosses the edge of a block."""

from __future__ import annotations

import re
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync import xp
from cudasync.array.memory.free_lists import idle_bytes
from cudasync.graph.passes import PASSES
from cudasync.graph.passes.liveness import Live
from cudasync.graph.placement.memory_partition import everything

# Blocks themselves are the subject, so that few rounds must stay rounds.
pytestmark = pytest.mark.usefixtures("rounds_stay")

SIZE = 16
ROUNDS = 40


@pytest.fixture
def x():
    return cs.array(np.linspace(-1, 1, SIZE, dtype=np.float32))


@pytest.fixture
def flag():
    return cs.array(np.array([1], np.int32))


def update(u):
    """One update with nine operations, eight of which make temporaries."""
    u[...] = xp.tanh(u * 2 + 1) * u + xp.exp(-u) * 0.5


@contextmanager
def as_repeat(g, flag):
    with g.repeat(ROUNDS):
        yield


@contextmanager
def as_while(g, flag):
    with g.while_loop(flag):
        yield
        flag[...] = 0


@contextmanager
def as_cond(g, flag):
    with g.cond(flag):
        yield


@contextmanager
def as_otherwise(g, flag):
    flag[...] = 0
    with g.cond(flag) as chosen:
        flag[...] = 2
    with chosen.otherwise():
        yield


@contextmanager
def as_nested(g, flag):
    with g.repeat(ROUNDS), g.cond(flag):
        yield


@contextmanager
def as_child(g, flag):
    with cs.graph() as inner:
        yield
    with g.repeat(ROUNDS):
        inner.launch()


BLOCKS = {
    "repeat": as_repeat,
    "while_loop": as_while,
    "cond": as_cond,
    "otherwise": as_otherwise,
    "a block in a block": as_nested,
    "a graph in a block": as_child,
}
blocks = pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
# By conditional nodes of the driver, and by the engine.
ways = pytest.mark.parametrize("without", [(), ("conditionals",)], ids=["device", "engine"])


def steps(executable, name=""):
    """The nodes on `float32` data inside of blocks, and outside."""
    return [
        node
        for node in everything(executable.nodes)
        if node.control is None and node.launch is not None and name in node.name
    ]


def recorded(block, body, flag):
    with cs.graph() as g, block(g, flag):
        kept = body()
    return g, kept


def plainly(body):
    with cs.graph() as g:
        kept = body()
    return g, kept


@blocks
@ways
def test_an_update_is_one_kernel_in_a_block_as_outside(block, without, x, flag):
    y = x.copy()
    g, _ = recorded(block, lambda: update(x), flag)
    with g.instantiate(without=without) as executable:
        assert len(steps(executable, "tanh")) == 1
        assert not steps(executable, "exp")[1:]
        executable.launch()
        rounds = ROUNDS if block in (as_repeat, as_nested, as_child) else 1
        for _ in range(rounds):
            update(y)
        assert x.numpy().tobytes() == y.numpy().tobytes()


@blocks
@ways
def test_what_nobody_can_ask_for_is_not_computed_in_a_block(block, without, x, flag):
    def body():
        lost = xp.sqrt(x)
        kept = xp.cos(x)
        also_lost = xp.sin(lost)
        del lost, also_lost
        return kept

    g, kept = recorded(block, body, flag)
    with g.instantiate(without=without) as executable:
        assert not steps(executable, "sqrt") + steps(executable, "sin")
        assert len(steps(executable, "cos")) == 1
        executable.launch()
        assert kept.numpy().tobytes() == xp.cos(x).numpy().tobytes()


@blocks
@ways
def test_a_sum_takes_in_its_operand_in_a_block(block, without, x, flag):
    def body():
        return xp.sum(x * x + 3)

    total = xp.sum(x * x + 3).numpy()
    g, kept = recorded(block, body, flag)
    with g.instantiate(without=without) as executable:
        assert len(steps(executable, "sum")) == 1
        assert not any(node.name == "multiply, add" for node in everything(executable.nodes))
        executable.launch()
        assert kept.numpy() == total


@blocks
@ways
def test_copies_of_adjacent_memory_are_one_in_a_block(block, without, x, flag):
    y = cs.zeros(SIZE, np.float32)

    def body():
        cs.copy(y[:8], x[:8])
        cs.copy(y[8:], x[8:])

    g, _ = recorded(block, body, flag)
    with g.instantiate(without=without) as executable:
        copies = [n for n in everything(executable.nodes) if n.transfer and n.transfer.source]
        assert len(copies) == 1
        executable.launch()
        assert y.numpy().tobytes() == x.numpy().tobytes()


@blocks
@ways
def test_temporaries_of_a_body_share_memory_and_the_rest_is_given_back(block, without, flag):
    x = cs.array(np.arange(64, dtype=np.int32))

    def body():
        one = x * 2
        two = one + 1
        three = two * 3
        four = three + 4
        return four * 5

    left_out = ("fusion", "dead", *without)
    given = []
    for make in (plainly, lambda body: recorded(block, body, flag)):
        g, kept = make(body)
        executable = g.instantiate(without=left_out)
        before = idle_bytes()
        del g
        given.append(idle_bytes() - before)
        executable.launch()
        assert kept.numpy().tolist() == [((i * 2 + 1) * 3 + 4) * 5 for i in range(64)]
        executable.close()
        del executable
    assert given[0] == 2 * 256
    assert given[1] == given[0]


def test_branches_of_a_body_are_on_streams_of_their_own(x, flag):
    others = [cs.zeros(SIZE, np.float32) for _ in range(3)]

    def body():
        for each in (x, *others):
            update(each)
            update(each)

    (alone, _), (g, _) = plainly(body), recorded(as_repeat, body, flag)
    with g.instantiate() as executable, alone.instantiate() as plain:
        (block,) = executable.nodes
        inside = block.control.bodies[0]
        assert [node.stream for node in inside] == [node.stream for node in plain.nodes]
        assert len({node.stream for node in inside}) == 4
        edges = [[other.index for other in node.before] for node in inside]
        assert edges == [[other.index for other in node.before] for node in plain.nodes]


# What a body makes and somebody reads later: `t` is dropped, and every pass must keep its value.


def behind(g, x, y, flag):
    with g.repeat(3):
        t = x * 2 + 1
        x += t
    y += t


def in_the_other_branch(g, x, y, flag):
    with g.repeat(3):
        with g.cond(flag) as chosen:
            t = x * 2 + 1
        with chosen.otherwise():
            y += t
        flag[...] = 0


def in_a_later_launch(g, x, y, flag):
    with g.cond(flag) as chosen:
        t = x * 2 + 1
    with chosen.otherwise():
        y += t
    flag[...] = 0


def in_a_later_round(g, x, y, flag):
    t = x * 2 + 1
    with g.repeat(3):
        y += t
        t[...] = x * y


def in_a_block_behind(g, x, y, flag):
    with g.repeat(2):
        t = x * 2 + 1
    with g.cond(flag):
        y += t


def in_a_block_of_the_body(g, x, y, flag):
    with g.repeat(2):
        t = x * 2 + 1
        x += 1
        with g.cond(flag):
            y += t


def by_a_function_of_the_host(g, x, y, flag):
    with g.repeat(2):
        t = x * 2 + 1
        x += 1
        cs.engine().push(lambda: None, reads=t, name="look")
    y += t


def by_the_condition(g, x, y, flag):
    with g.while_loop(flag):
        y += xp.abs(x) + 1
        flag[...] = xp.astype(xp.any(y < 4), np.int32)


CROSSING = (
    behind,
    in_the_other_branch,
    in_a_later_launch,
    in_a_later_round,
    in_a_block_behind,
    in_a_block_of_the_body,
    by_a_function_of_the_host,
    by_the_condition,
)


def outcome(program, without, launches=2):
    """The arrays after some launches of `program`."""
    # Memory that is used again may have the right values by chance.
    cs.empty_cache()
    x = cs.array(np.linspace(-1, 1, SIZE, dtype=np.float32))
    y, flag = cs.zeros(SIZE, np.float32), cs.array(np.array([1], np.int32))
    with cs.graph() as g:
        program(g, x, y, flag)
    with g.instantiate(without=without) as executable:
        for _ in range(launches):
            executable.launch()
        return [each.numpy().tobytes() for each in (x, y, flag)]


@ways
@pytest.mark.parametrize("program", CROSSING, ids=lambda program: program.__name__)
def test_what_is_read_outside_of_its_body_is_kept(program, without):
    assert outcome(program, without) == outcome(program, tuple(PASSES))


def test_values_that_are_taken_for_dead_are_found(monkeypatch):
    monkeypatch.setattr(Live, "meets", lambda self, region: False)
    wrong = [
        program.__name__
        for program in CROSSING
        if outcome(program, ()) != outcome(program, tuple(PASSES))
    ]
    assert {"behind", "in_the_other_branch", "in_a_later_launch", "in_a_block_behind"} <= {*wrong}


BLOCK = re.compile(
    r"block (.*), recorded at (.*):(\d+): nodes (\d+) -> (\d+), edges (\d+) -> (\d+), "
    r"bytes (\d+) -> (\d+), estimated us ([\d.]+) -> ([\d.]+)(; .*)?"
)


def test_the_report_has_a_line_for_each_block_with_its_own_nodes(x, flag):
    with cs.graph() as g:
        x += 1
        with g.repeat(ROUNDS):
            update(x)
            with g.cond(flag) as chosen:
                update(x)
            with chosen.otherwise():
                x += 1
                flag += 1
    with g.instantiate() as executable:
        lines = executable.report().splitlines()
    found = [match for match in map(BLOCK.fullmatch, lines) if match]
    assert [(each[1], *map(int, each.group(4, 5, 6, 7))) for each in found] == [
        (f"repeat({ROUNDS})", 10, 2, 12, 1),
        ("cond", 9, 1, 11, 0),
        ("otherwise cond", 2, 2, 0, 0),
    ]
    assert all(each[2] == __file__ for each in found)
    assert found[1][12] == "; fusion: 8 of 9 nodes fused into other nodes"
    assert int(found[1][9]) < int(found[1][8])
    assert float(found[1][11]) < float(found[1][10])
    assert len([line for line in lines if line.startswith("block")]) == 3


def test_a_block_that_is_never_run_has_no_nodes_left(x):
    with cs.graph() as g, g.repeat(0):
        update(x)
    (line,) = [each for each in g.instantiate().report().splitlines() if "block " in each][-1:]
    assert BLOCK.fullmatch(line)[5] == "0"
    assert line.endswith("; no round is left")


def test_a_pass_that_is_left_out_is_left_out_in_blocks_too(x):
    with cs.graph() as g, g.repeat(ROUNDS):
        update(x)
    with g.instantiate(without=("fusion",)) as executable:
        assert len(steps(executable)) == 9


@blocks
def test_a_launch_of_updates_in_a_block_takes_no_more_calls_than_written_out(block, x, flag):
    g, _ = recorded(block, lambda: update(x), flag)
    with g.instantiate() as executable:
        executable.launch().wait()
        flag[...] = 1
        cs.waitall()
        with counted_calls() as calls:
            executable.launch()
            cs.waitall()
    assert calls["cuGraphLaunch"] == 1
    assert not [name for name in calls if name.startswith(("cuLaunch", "cuMemcpy"))]
