"""A wait for all covers the pushes of running ops, wherever it comes between their steps."""

from __future__ import annotations

import threading

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, comes_true, engine_of

import cudasync as cs
from cudasync.engine.log.combiner import COMBINER


class Count:
    """The count of an engine's nested pushes; a wait for all begins when it goes up first."""

    def __init__(self, real, waits):
        self._real, self._waits = real, waits
        self.is_first = True

    @property
    def taken(self):
        return self._real.taken

    def next(self):
        if self.is_first:
            self.is_first = False
            # The wait reads the count behind this push's.
            self._real.next()
            self._waits()


def push_plain(engine, late):
    engine.push(late)


def push_general(engine, late):
    engine.push(late, priority=1)


def push_repeated(engine, late):
    x = cs.Var()
    for _ in range(3):
        engine.push(late, writes=[x])


def push_batch(engine, late):
    engine.push_many([(late, [], []), (late, [], [])])


def push_to_a_device(engine, array):
    engine.push(lambda stream: None, writes=[array], device=cs.Device(0))


def push_inline(engine, array):
    assert (array + 1).numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize(("push", "device"), [(push_to_a_device, 0), (push_inline, "cpu")])
def test_a_nested_push_that_runs_in_its_call_is_counted_behind_its_entry_too(push, device):
    ends = []
    with engine_of(workers=2) as engine:
        array = cs.zeros(3, device=device)
        engine.waitall()
        engine._nested = Count(engine._nested, lambda: ends.append(COMBINER.log.end))

        def nested():
            ends.append(COMBINER.log.end)
            push(engine, array)

        engine.push(nested).wait(PATIENCE_S)
    before, counted = ends
    assert counted > before


@pytest.mark.parametrize("push", [push_plain, push_general, push_repeated, push_batch])
def test_a_wait_that_begins_within_a_nested_push_waits_for_it(push):
    gate, over, starts = threading.Event(), [], []

    def late():
        assert gate.wait(PATIENCE_S)

    def wait():
        engine.waitall()
        over.append(gate.is_set())

    def nested():
        starts.append(COMBINER.log.end)
        push(engine, late)

    def begin_to_wait():
        end = COMBINER.log.end
        assert end > starts[0], "the push is counted before it is in the log"
        crew.start(wait)
        assert comes_true(lambda: COMBINER.log.end > end)

    with Crew() as crew, engine_of(workers=3) as engine:
        engine._nested = Count(engine._nested, begin_to_wait)
        engine.push(nested).wait(PATIENCE_S)
        # Meanwhile a wait that is wrong comes back.
        for _ in range(20):
            engine.push(int).wait(PATIENCE_S)
        gate.set()
    assert over == [True]
