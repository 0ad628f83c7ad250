"""Ops that wait for each other in a ring: each waits for an op that can only end after it."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, comes_true, engine_of

import cudasync as cs
from cudasync.engine import waiters


@pytest.mark.parametrize("count", [2, 3])
def test_ops_that_wait_for_each_other_in_a_ring_are_told(count):
    """Each function waits for the next op. No declared read or write shows this."""
    with engine_of(workers=count) as engine:
        ops, meet = [], threading.Barrier(count + 1)

        def wait_for_the_next(mine: int) -> None:
            meet.wait(PATIENCE_S)
            ops[(mine + 1) % count].wait()

        ops += [engine.push(partial(wait_for_the_next, n), name=f"op {n}") for n in range(count)]
        meet.wait(PATIENCE_S)
        told = [op.exception(PATIENCE_S).cause for op in ops]
        while isinstance(told[0], cs.OpError):
            told = [getattr(each, "cause", each) for each in told]
        assert any(isinstance(each, cs.DeadlockError) for each in told)
        engine.clear_errors()


@pytest.mark.parametrize("is_last", [False, True])
def test_a_wait_that_ends_by_itself_is_no_part_of_a_ring(is_last):
    """Whichever of the two waits begins first."""
    with engine_of(workers=2) as engine:
        ops, pushed, has_waited = [], threading.Event(), threading.Event()

        def first() -> None:
            assert pushed.wait(PATIENCE_S)
            if is_last:
                assert comes_true(lambda: waiters._waits)
            with pytest.raises(TimeoutError):
                ops[1].wait(timeout=0.01)
            has_waited.set()

        def second() -> None:
            assert pushed.wait(PATIENCE_S)
            ops[0].wait()
            assert has_waited.is_set()

        ops += [engine.push(first), engine.push(second)]
        pushed.set()
        assert [op.exception(PATIENCE_S) for op in ops] == [None, None]
