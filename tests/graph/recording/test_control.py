"""Blocks `repeat`, `while_loop` and `cond`: what they do, and what they refuse."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import cudasync as cs
from cudasync.engine import current

# Blocks themselves are the subject, so that few rounds must stay rounds.
pytestmark = pytest.mark.usefixtures("rounds_stay")


@pytest.fixture
def x():
    return cs.zeros(4, np.int32, device="cpu")


@pytest.fixture
def flag():
    return cs.array(np.array([1], np.int32), device="cpu")


def test_blocks_are_nodes_of_the_program_around_them(x, flag):
    with cs.graph() as g:
        x += 1
        with g.while_loop(flag), g.repeat(2):
            x += 1
            flag -= flag
        with g.cond(flag) as chosen:
            pass
        with chosen.otherwise():
            x += 2
            assert len(g) == 3
    assert [node.name for node in g.nodes] == ["add", "while_loop", "cond"]
    (repeat,) = g.nodes[1].control.bodies[0]
    assert [node.name for node in repeat.control.bodies[0]][:1] == ["add"]
    assert g.nodes[2].dependencies == g.nodes[1:2]
    assert "test_control.py:" in g.nodes[1].push_site
    dot, mermaid = g.to_dot(), g.to_mermaid()
    assert "subgraph cluster_n1_0_0 {" in dot
    assert "n1 -> n1_0_0;" in dot
    assert "n2 -> n2_1_0;" in dot
    assert 'subgraph sn2 ["cond"]' in mermaid
    g.instantiate().launch()
    assert x.numpy().tolist() == [5] * 4


def test_a_launch_does_not_wait_for_its_flag(x, flag):
    gate = threading.Event()
    with cs.Engine(workers=1):
        with cs.graph() as g, g.while_loop(flag):
            x += 1
            flag -= 1
        executable = g.instantiate()
        cs.engine().push(gate.wait, writes=flag)
        op = executable.launch()
        x += 10
        assert not op.done()
        gate.set()
        assert x.numpy().tolist() == [11] * 4


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64])
@pytest.mark.parametrize("device", ["cpu", 0])
def test_a_flag_is_of_any_integer_type_on_any_device(x, dtype, device):
    flag = cs.array(np.array([1], dtype), device=device)
    with cs.graph() as g, g.cond(flag):
        x += 1
    with g.instantiate() as executable:
        executable.launch()
        flag[...] = dtype(0).item()
        executable.launch()
        assert x.numpy().tolist() == [1] * 4


def test_a_failure_says_in_which_round(x):
    rounds = []

    def fails():
        rounds.append(1)
        if len(rounds) == 3:
            raise ValueError("three")

    with cs.Engine() as engine:
        with cs.graph() as g, g.repeat(4):
            cs.engine().push(fails, writes=x, name="fails")
        op = g.instantiate().launch()
        with pytest.raises(
            cs.OpError, match=r"round 2 of repeat\(4\), node 0 \(fails\), .*test_control"
        ):
            op.wait()
        assert len(rounds) == 4
        engine.clear_errors()


def test_a_function_of_another_pool_runs_there(x):
    seen = []
    with cs.Engine(workers=1, pools={"io": 1}):
        with cs.graph() as g, g.repeat(2):
            push = cs.engine().push
            push(
                lambda: seen.append(cs.engine()._pools["io"] is current.worker().pool),
                writes=x,
                pool="io",
            )
        g.instantiate().launch().wait()
    assert seen == [True, True]


def test_arguments_inside_of_a_block_are_replaced(x):
    with cs.graph() as g:
        y = g.argument("y", x)
        with g.repeat(2):
            y += 1
    executable = g.instantiate()
    executable.launch()
    other = cs.array(np.ones(4, np.int32), device="cpu")
    executable.update(y=other)
    executable.launch()
    assert (x.numpy().tolist(), other.numpy().tolist()) == ([2] * 4, [3] * 4)


def test_misuse_is_said_so(x, flag):
    g = cs.graph()
    with pytest.raises(cs.RecordingError, match="inside the `with` block"), g.repeat(1):
        pass
    with g:
        for wrong, error in [
            (True, TypeError),
            (1.5, TypeError),
            (flag, TypeError),
            (-1, ValueError),
        ]:
            with pytest.raises(error, match="repeat takes"):
                g.repeat(wrong)
        for wrong, error in [(True, TypeError), (x, ValueError), (np.ones(1), TypeError)]:
            with pytest.raises(error, match="a flag"):
                g.while_loop(wrong)
        with g.cond(flag) as chosen:
            with pytest.raises(cs.RecordingError, match=r"test_control.py:\d+: waitall"):
                cs.waitall()
            x += 1
        x += 1
        with pytest.raises(cs.RecordingError, match="directly follow"), chosen.otherwise():
            pass
        with pytest.raises(cs.RecordingError, match="once"), chosen:
            pass
        with pytest.raises(TypeError), g.repeat(2):
            x += "not a number"
    g.instantiate().launch()
    assert x.numpy().tolist() == [2] * 4


def test_what_is_replaced_inside_of_a_block_keeps_its_order():
    seen, a = [], cs.Var("a")
    with cs.Engine(pools={"io": 1}):
        with cs.graph() as g:
            first = g.argument("first", lambda: seen.append("none"))
            with g.repeat(2):
                cs.engine().push(first, writes=a)
                cs.engine().push(lambda: seen.append(2), writes=a, pool="io")
                cs.engine().push(lambda: seen.append(3), writes=a)
        with g.instantiate() as executable:
            executable.update(first=lambda: seen.append(1))
            executable.launch().wait()
    assert seen == [1, 2, 3] * 2
