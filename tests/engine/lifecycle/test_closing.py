"""Closing an engine in use: each push runs or is refused, and every waiter is released."""

from __future__ import annotations

import threading

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, close, hasty, held_by

import cudasync as cs


class Pushers:
    """Threads that push ops on crossed variables until their engine is closed."""

    def __init__(self, engine: cs.Engine, crew: Crew, count: int) -> None:
        self.engine = engine
        self.variables = [cs.Var("x"), cs.Var("y")]
        self.ops: list[cs.Op] = []
        self.ran: list[object] = []
        self.refused: list[int] = []
        self.under_way = threading.Barrier(count + 1)
        for index in range(count):
            crew.start(self.push, index)

    def push(self, thread: int) -> None:
        variables = self.variables[:: 1 if thread % 2 else -1]
        for index in range(10**9):
            if index == 20:
                self.under_way.wait(PATIENCE_S)
            key = (thread, index)
            try:
                op = self.engine.push(lambda key=key: self.ran.append(key), writes=variables)
            except cs.ClosedError:
                self.refused.append(thread)
                return
            self.ops.append(op)

    def assert_each_ran_or_was_refused(self) -> None:
        assert all(op.done() and op.exception(0) is None for op in self.ops)
        assert len(self.ran) == len(self.ops), "a push that returned was lost, or one refused ran"
        assert len(set(self.ran)) == len(self.ran)


@pytest.mark.parametrize("limit", [None, 3])
def test_closing_while_others_push_runs_or_refuses_each_push(limit):
    for _ in range(8):
        engine = cs.Engine(workers=2, max_in_flight=limit)
        with hasty(), Crew() as crew:
            pushers = Pushers(engine, crew, 3)
            pushers.under_way.wait(PATIENCE_S)
            close(engine)
        assert sorted(pushers.refused) == [0, 1, 2]
        pushers.assert_each_ran_or_was_refused()


def test_closing_from_several_threads_returns_to_each_when_all_is_done():
    for _ in range(20):
        engine = cs.Engine(workers=2)
        gate, x = threading.Event(), cs.Var("x")
        engine.push(held_by(gate), writes=[x])
        last = engine.push(lambda: None, reads=[x])
        ready = threading.Barrier(4)

        def closer(engine=engine, last=last, ready=ready) -> None:
            ready.wait(PATIENCE_S)
            engine.close()
            assert last.done()
            assert engine.is_closed

        with hasty(), Crew() as crew:
            for _ in range(3):
                crew.start(closer)
            ready.wait(PATIENCE_S)
            gate.set()


def test_closing_lets_those_go_who_wait():
    for _ in range(20):
        engine = cs.Engine(workers=1)
        gate = threading.Event()
        op = engine.push(held_by(gate))
        waiting = threading.Barrier(5)

        def waiter(wait, waiting=waiting) -> None:
            waiting.wait(PATIENCE_S)
            wait()

        with hasty(), Crew() as crew:
            for wait in (op.wait, engine.waitall, engine.clear_errors, engine.close):
                crew.start(waiter, wait)
            waiting.wait(PATIENCE_S)
            gate.set()
