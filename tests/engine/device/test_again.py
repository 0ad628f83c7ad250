"""A repeated launch looks up no history again, unless its memory was used in between."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S
from helpers.concurrency.thread_crew import comes_true
from helpers.driver.call_counts import counted_calls
from helpers.engine_programs.runner import kernels

import cudasync as cs
from cudasync.engine.log.histories import Known

N = 8


@pytest.fixture
def engine():
    with cs.Engine(workers=2) as engine:
        yield engine


def shift(x):
    one, n = np.int32(1), np.uint32(N)
    return kernels(cs.Device(0))["mix"].prepare(grid=1, block=32, args=(x, x, one, n, one, one))


def graph_of(x):
    with cs.graph() as g:
        x += 1
    return g.instantiate()


def pushed(x):
    """A function that pushes a launch which writes x."""
    return shift(x).push


def launched(x):
    """A function that launches a graph which writes x."""
    return graph_of(x).launch


WAYS = {"a prepared launch": pushed, "a graph": launched}


def at_once(condition):
    return condition()


def is_behind_a_reader(engine, way, look=at_once):
    """True if the second launch waits for the reader of the first launch's result.

    `look` is given a function that is true once that launch was issued. Another thread may
    issue it: a launch that need not wait is issued soon, not at once.
    """
    x, gate = cs.zeros(N, np.int32), threading.Event()
    again = way(x)
    for _ in range(3):
        again()
    reader = engine.push(lambda: gate.wait(PATIENCE_S), reads=x)
    second = again()
    is_held = not look(lambda: second._point is not None or second.finished)
    gate.set()
    assert reader.result(PATIENCE_S)
    engine.waitall(PATIENCE_S)
    return is_held


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_who_reads_in_between_is_waited_for(engine, way):
    assert is_behind_a_reader(engine, way)


class Always:
    """An object that equals any other object."""

    __hash__ = None

    def __eq__(self, other):
        return True


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_launch_that_never_looks_is_found(engine, way, monkeypatch):
    monkeypatch.setattr(Known, "latest", property(lambda _: Always(), lambda *_: None))
    assert not is_behind_a_reader(engine, way, look=comes_true)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_failure_in_between_poisons_the_next(engine, way):
    def fail():
        raise ValueError("planned")

    x = cs.zeros(N, np.int32)
    again = way(x)
    again()
    again()
    engine.push(fail, writes=x).exception(PATIENCE_S)
    assert isinstance(again().exception(PATIENCE_S), cs.OpError)
    engine.clear_errors()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_launch_behind_itself_is_on_its_stream_without_a_wait(engine, way):
    x = cs.zeros(N, np.int32)
    again = way(x)
    again()
    engine.waitall(PATIENCE_S)
    with counted_calls() as calls:
        for _ in range(5):
            again()
        engine.waitall(PATIENCE_S)
    assert not calls["cuStreamWaitEvent"]


def test_two_executables_on_the_same_memory_come_one_after_the_other(engine):
    x, y = (cs.zeros(N, np.int32) for _ in range(2))
    with cs.graph() as g:
        x += 1
        y += x
    with cs.graph() as h:
        x *= 2
        y -= x
    one, other = g.instantiate(), h.instantiate()
    a = b = 0
    for launch in (one, one, other, other, one, other, one, one):
        launch.launch()
        a = a + 1 if launch is one else a * 2
        b = b + a if launch is one else b - a
    assert (x.numpy()[0], y.numpy()[0]) == (a, b)


def test_memory_that_was_freed_and_handed_out_anew_is_seen(engine):
    """Memory at a reused address has a new history."""
    x = cs.zeros(N, np.int32)
    again = launched(x)
    again()
    for _ in range(3):
        other = cs.zeros(N, np.int32)
        other += 1
        del other
        again()
    assert x.numpy().tolist() == [4] * N
