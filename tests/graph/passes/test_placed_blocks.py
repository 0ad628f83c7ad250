"""Blocks with steps recorded for any device: placed as a whole on one device, or step by step."""

from __future__ import annotations

import re
from itertools import cycle

import numpy as np
import pytest
from helpers.graphs.placed_programs import SIZE, placed_by

import cudasync as cs
from cudasync import xp
from cudasync.graph.placement.memory_partition import everything

pytestmark = [
    pytest.mark.skipif(cs.device_count() < 2, reason="no second device"),
    # Blocks themselves are the subject, so that few rounds must stay rounds.
    pytest.mark.usefixtures("rounds_stay"),
]

ROUNDS = 5
LARGE = 1 << 18


def full(value, size=SIZE, device=cs.ANY):
    return xp.full((size,), value, dtype=xp.int32, device=device)


def inside(executable):
    """The steps in blocks."""
    return [node for node in everything(executable.nodes) if node not in executable.nodes]


def moves(executable):
    """The number of copies in a launch's report, and how many of them are in blocks."""
    (said,) = re.findall(r"(\d+) moves of", executable.report())
    return int(said), sum(node.name == "move" for node in inside(executable))


def on_device(ordinal):
    """A choice of this device for each step that may run there; blocks are placed as a whole."""
    return lambda places: next((p for p in places if p is cs.Device(ordinal)), places[0])


def step_by_step(ordinal):
    """The same choice, with the steps of blocks placed one by one."""
    return lambda places: None if None in places else on_device(ordinal)(places)


@pytest.mark.parametrize("choose", [on_device(1), step_by_step(1)], ids=["whole", "by steps"])
def test_what_lives_through_rounds_is_moved_once(choose):
    with cs.graph() as g:
        x, y = full(1), full(2)
        with g.repeat(ROUNDS):
            x += y
            y += x
    with placed_by(choose), g.instantiate() as executable:
        # Both arrays move back for their owners.
        assert moves(executable) == (2, 0)
        assert {node.device for node in inside(executable)} == {cs.Device(1)}
        for _ in range(2):
            executable.launch()
    a, b = 1, 2
    for _ in range(ROUNDS):
        a += b
        b += a
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([a] * SIZE, [b] * SIZE)


def test_what_a_round_takes_from_elsewhere_is_moved_in_each():
    """Two steps on two devices pass a value to each other.

    The report counts these moves for each round, and the moves before and behind the loop once.
    """
    turns = cycle([1, 2])

    def by_turns(places):
        return None if None in places else cs.Device(next(turns))

    with cs.graph() as g:
        x = full(1)
        with g.repeat(ROUNDS):
            x += 1
            x *= 2
    with placed_by(by_turns), g.instantiate() as executable:
        assert moves(executable) == (2 + 2 * ROUNDS, 2)
        executable.launch()
    wanted = 1
    for _ in range(ROUNDS):
        wanted = (wanted + 1) * 2
    assert x.numpy().tolist() == [wanted] * SIZE


def test_a_temporary_of_a_round_stays_where_it_is_made():
    with cs.graph() as g:
        x = full(1)
        with g.repeat(ROUNDS):
            x += xp.cumulative_sum(x, dtype=xp.int32)
    with placed_by(on_device(1)), g.instantiate() as executable:
        assert moves(executable) == (1, 0)
        executable.launch()
    wanted = np.ones(SIZE, np.int32)
    for _ in range(ROUNDS):
        wanted += np.cumsum(wanted, dtype=np.int32)
    assert x.numpy().tolist() == wanted.tolist()


def test_a_loop_goes_to_another_device_with_its_flag():
    """The loop is a conditional node of that device, and no thread waits between its rounds."""
    with cs.graph() as g:
        x, count = full(0), full(ROUNDS, 1)
        with g.while_loop(count):
            x += 3
            count -= 1
    with placed_by(on_device(1)), g.instantiate() as executable:
        (block,) = [node for node in executable.nodes if node.control is not None]
        assert block.control.flag.device is cs.Device(1)
        assert moves(executable) == (2, 0)
        if "left to the engine" not in executable.report():
            assert "1 of 1 blocks are conditional nodes" in executable.report()
            assert block.device is cs.Device(1)
        executable.launch()
        assert x.numpy().tolist() == [3 * ROUNDS] * SIZE
        executable.launch()
    assert count.numpy().tolist() == [0]


def test_a_flag_of_a_named_device_keeps_its_block_there():
    with cs.graph() as g:
        x, count = full(0), full(ROUNDS, 1, device=0)
        with g.while_loop(count):
            x += 3
            count -= 1
    with placed_by(on_device(1)), g.instantiate() as executable:
        (block,) = [node for node in executable.nodes if node.control is not None]
        assert block.control.flag.device is cs.Device(0)
        executable.launch()
    assert x.numpy().tolist() == [3 * ROUNDS] * SIZE


@pytest.mark.parametrize("is_chosen", [0, 1])
def test_both_branches_leave_what_they_write_in_one_place(is_chosen):
    with cs.graph() as g:
        x, flag = full(1), full(is_chosen, 1)
        with g.cond(flag) as chosen:
            x += 1
        with chosen.otherwise():
            x += xp.cumulative_sum(x, dtype=xp.int32)
        y = x * 2
    with placed_by(on_device(1)), g.instantiate() as executable:
        executable.launch()
    wanted = np.ones(SIZE, np.int32) + (1 if is_chosen else np.cumsum(np.ones(SIZE)))
    assert y.numpy().tolist() == (2 * wanted).tolist()


def test_a_function_of_the_host_in_a_loop_finds_what_it_needs_at_home():
    seen = []
    number = cs.pinned_empty((1,), np.int32)
    with cs.graph() as g:
        x = full(1)
        with g.repeat(3):
            x += 1
            cs.copy(number, x[:1])
            cs.engine().push(lambda: seen.append(int(number[0])), reads=number)
    with placed_by(step_by_step(1)), g.instantiate() as executable:
        assert cs.Device(1) in {node.device for node in inside(executable)}
        executable.launch().wait()
    assert seen == [2, 3, 4]


def test_loops_that_need_nothing_of_each_other_go_to_several_devices():
    """The choice counts the time of all rounds. A single round would not be worth a copy."""

    def recorded(rounds):
        with cs.graph() as g:
            made = []
            for number in range(cs.device_count()):
                x = xp.full((LARGE,), number, dtype=xp.float32, device=cs.ANY)
                with g.repeat(rounds):
                    x = xp.cumulative_sum(x)
                made.append(x)
        return g, made

    once, _a = recorded(1)
    often, _b = recorded(1000)
    with once.instantiate() as executable:
        assert {node.device for node in inside(executable)} == {cs.Device(0)}
    with often.instantiate() as executable:
        every = {cs.Device(each) for each in range(cs.device_count())}
        assert {node.device for node in inside(executable)} == every
        # There is one move for each loop away from home, because the program keeps the results.
        assert moves(executable) == (cs.device_count() - 1, 0)


def test_a_block_in_a_block_is_placed_with_it():
    with cs.graph() as g:
        x = full(1)
        with g.repeat(3):
            x += 1
            with g.repeat(2):
                x *= 2
    for choose in (on_device(1), step_by_step(1)):
        with placed_by(choose), g.instantiate() as executable:
            assert moves(executable) == (1, 0)
            executable.launch()
            wanted = 1
            for _ in range(3):
                wanted = (wanted + 1) * 4
            assert x.numpy().tolist() == [wanted] * SIZE


def test_a_child_in_a_block_is_placed_as_what_is_in_it():
    with cs.graph() as g:
        x = full(1)
        with cs.graph() as child:
            x += 1
        with g.repeat(3):
            child.launch()
    with placed_by(on_device(1)), g.instantiate() as executable:
        assert {node.device for node in inside(executable)} == {cs.Device(1)}
        executable.launch()
    assert x.numpy().tolist() == [4] * SIZE
