"""Any number of threads push, wait and close at once: one total order, and no op is lost."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, hasty, held_by

import cudasync as cs


class Cell:
    """A value behind a variable. It notices two ops that use it at once."""

    def __init__(self, name: str) -> None:
        self.var = cs.Var(name)
        self.value = 0
        self.is_in_use = False

    def add(self) -> None:
        assert not self.is_in_use, "two ops write one variable at once"
        self.is_in_use = True
        self.value += 1
        self.is_in_use = False


def push_crossed(threads: int, pushes: int) -> None:
    """Each thread pushes ops on all three variables, in its own order; every push counts."""
    cells = [Cell(name) for name in "xyz"]
    order: list[tuple[int, int]] = []

    def bump(thread: int, index: int) -> None:
        for cell in cells:
            cell.add()
        order.append((thread, index))

    with engine_of(workers=3) as engine, hasty():
        ready = threading.Barrier(threads)

        def pusher(thread: int) -> None:
            mine = cells[thread % 3 :] + cells[: thread % 3]
            if thread % 2:
                mine.reverse()
            variables = [cell.var for cell in mine]
            ready.wait(PATIENCE_S)
            for index in range(pushes):
                engine.push(partial(bump, thread, index), writes=variables)

        def looker() -> None:
            for _ in range(pushes // 10):
                engine.push(lambda: None, reads=[cells[2].var, cells[0].var]).wait(PATIENCE_S)

        with Crew() as crew:
            for thread in range(threads):
                crew.start(pusher, thread)
            crew.start(looker)
        engine.waitall(PATIENCE_S)
    assert [cell.value for cell in cells] == [threads * pushes] * 3
    assert sorted(order) == [(t, i) for t in range(threads) for i in range(pushes)]
    for thread in range(threads):
        mine = [index for t, index in order if t == thread]
        assert mine == list(range(pushes)), "ops of one thread ran out of order"


def test_crossed_pushes_from_many_threads_take_effect_in_one_order():
    push_crossed(threads=6, pushes=400)


@pytest.mark.slow
def test_crossed_pushes_by_the_hundred_thousand_take_effect_in_one_order():
    push_crossed(threads=8, pushes=15_000)


def test_a_read_sees_two_crossed_variables_in_step():
    """A writes x, y; B writes y, x. An op that reads both finds them equal."""
    values = {"x": 0, "y": 0}
    x, y = cs.Var("x"), cs.Var("y")
    uneven: list[dict[str, int]] = []

    def bump(*names: str) -> None:
        for name in names:
            values[name] += 1

    def look() -> None:
        seen = dict(values)
        if seen["x"] != seen["y"]:
            uneven.append(seen)

    with engine_of(workers=3) as engine, hasty(), Crew() as crew:

        def pusher(first: cs.Var, second: cs.Var) -> None:
            for _ in range(500):
                engine.push(lambda: bump(first.name, second.name), writes=[first, second])
                engine.push(look, reads=[second, first])

        for pair in ((x, y), (y, x), (x, y)):
            crew.start(pusher, *pair)
    assert values == {"x": 1500, "y": 1500}
    assert uneven == []


def test_overlapping_slices_pushed_from_many_threads_are_each_written_whole():
    data = np.zeros(64, np.int64)
    slices = [data[0:40], data[20:60], data[8:9], data[::2], data[30:]]

    with engine_of(workers=3) as engine, hasty(), Crew() as crew:

        def pusher(view: np.ndarray) -> None:
            def add() -> None:
                view[:] = np.array([value + 1 for value in view.tolist()])

            for _ in range(150):
                engine.push(add, reads=[view], writes=[view])

        for view in slices:
            crew.start(pusher, view)
    expected = np.zeros(64, np.int64)
    for view in (expected[0:40], expected[20:60], expected[8:9], expected[::2], expected[30:]):
        view += 150
    assert data.tolist() == expected.tolist()


def test_many_threads_wait_for_one_op_and_all_get_its_result():
    gate, x = threading.Event(), cs.Var("x")
    with engine_of(workers=1) as engine:
        engine.push(held_by(gate), writes=[x])
        op = engine.push(lambda: "result", reads=[x])
        waiting = threading.Barrier(9)
        results: list[object] = []

        def waiter(wait) -> None:
            waiting.wait(PATIENCE_S)
            results.append(wait())

        waits = [lambda: op.result(PATIENCE_S)] * 6 + [x.wait, engine.waitall]
        with Crew() as crew:
            for wait in waits:
                crew.start(waiter, wait)
            waiting.wait(PATIENCE_S)
            gate.set()
    assert Counter(results) == {"result": 6, None: 2}


def test_waiting_for_all_from_several_threads_that_push_covers_what_each_has_pushed():
    with engine_of(workers=2) as engine, hasty(), Crew() as crew:

        def pusher() -> None:
            for _ in range(60):
                ops = [engine.push(lambda: None) for _ in range(5)]
                engine.waitall(PATIENCE_S)
                assert all(op.done() for op in ops)

        for _ in range(4):
            crew.start(pusher)


def test_engines_wait_for_each_other_from_within_their_ops():
    with engine_of(workers=1) as one, engine_of(workers=1) as two:

        def ping(depth: int, here: cs.Engine, there: cs.Engine) -> int:
            if depth == 0:
                return 0
            op = there.push(lambda: ping(depth - 1, there, here))
            return 1 + op.result(PATIENCE_S)

        assert one.push(lambda: ping(20, one, two)).result(PATIENCE_S) == 20


def test_an_op_may_wait_for_all_of_another_engine():
    ran: list[int] = []
    with engine_of(workers=1) as one, engine_of(workers=1) as two:

        def outer(index: int) -> bool:
            two.push(lambda: ran.append(index))
            two.waitall(PATIENCE_S)
            return index in ran

        ops = [one.push(partial(outer, index)) for index in range(10)]
        assert all(op.result(PATIENCE_S) for op in ops)


def test_ops_that_push_the_next_one_are_waited_for_to_the_last():
    ran: list[int] = []
    with engine_of(workers=2) as engine:

        def link(index: int) -> None:
            ran.append(index)
            if index < 2000:
                engine.push(lambda: link(index + 1))

        engine.push(lambda: link(0))
        engine.waitall(PATIENCE_S)
        assert ran == list(range(2001))


def test_a_push_that_has_returned_comes_before_every_push_that_begins_after():
    x, returned, log = cs.Var("x"), [], []
    with engine_of(workers=2) as engine, hasty(), Crew() as crew:

        def pusher() -> None:
            for _ in range(300):
                known = len(returned)
                engine.push(lambda known=known: log.append((known, len(log))), writes=[x])
                returned.append(None)

        for _ in range(4):
            crew.start(pusher)
    assert [position for _, position in log] == list(range(1200))
    assert all(known <= position for known, position in log)
