"""Events are reused once their op is over and no thread is about to wait for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import cudasync as cs
from cudasync.engine.device.events import EventPool
from cudasync.engine.trace import Counters


@pytest.fixture
def pool():
    return EventPool(cs.Device(0), timing=False, counters=Counters())


def an_op() -> Any:
    return SimpleNamespace(finished=False, _is_awaited=False)


def test_an_event_that_was_given_back_is_handed_out_again(pool):
    first = pool.take()
    pool.give_back(first)
    assert pool.take() is first


def test_an_event_in_use_is_not_handed_out(pool):
    held = [pool.take() for _ in range(50)]
    assert len({event.handle for event in held}) == 50


def test_a_pinned_event_goes_back_with_its_last_pin(pool):
    op, event = an_op(), pool.take()
    assert pool.pin(op, event)
    assert pool.pin(op, event)
    assert op._is_awaited
    op.finished = True
    pool.give_back_pinned(event)
    pool.unpin(event)
    other = pool.take()
    assert other is not event
    pool.unpin(event)
    assert pool.take() is event
    assert pool.take() not in (event, other)


def test_the_event_of_an_op_that_is_over_can_not_be_pinned(pool):
    op, event = an_op(), pool.take()
    op.finished = True
    assert not pool.pin(op, event)
    pool.give_back_pinned(event)
    assert pool.take() is event


def test_an_event_is_recorded_again_and_no_more_are_made_than_ops_are_in_flight():
    with cs.Engine(streams=1) as engine:
        token = cs.Var("token")
        for _ in range(200):
            engine.push(lambda stream: None, writes=token, device=cs.Device(0)).wait()
        assert engine.statistics().events_created <= 3


def test_closing_leaves_an_event_to_its_last_user(pool):
    stream = cs.Stream()
    event, free = pool.take(), pool.take()
    stream.record(event)
    pool.give_back(free)
    pool.close()
    event.synchronize()
    assert not event.is_closed
    assert free.is_closed
