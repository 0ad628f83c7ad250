"""Events used again: free when nobody refers to them any more, whoever that was."""

from __future__ import annotations

import gc

import pytest

import cudasync as cs
from cudasync.engine.events import EventPool
from cudasync.engine.trace import Counters


@pytest.fixture
def pool():
    return EventPool(cs.Device(0), timing=False, counters=Counters())


def test_an_event_is_handed_out_again_once_its_user_let_it_go(pool):
    first = pool.take()
    handle = first.handle
    del first
    assert pool.take().handle == handle


def test_an_event_in_use_is_not_handed_out(pool):
    held = [pool.take() for _ in range(50)]
    assert len({event.handle for event in held}) == 50


def test_an_event_whose_user_ended_in_a_cycle_can_be_recorded_again(pool):
    stream = cs.Stream()
    event = pool.take()
    handle = event.handle
    stream.record(event)
    cycle = [event]
    cycle.append(cycle)
    del event, cycle
    gc.collect()
    # Whatever is made next destroys what finalisers have noted.
    cs.Event()
    again = pool.take()
    assert again.handle == handle
    stream.record(again)
    stream.synchronize()


def test_some_events_in_use_for_ever_do_not_make_the_pool_grow(pool):
    held = [pool.take() for _ in range(20)]
    seen = {pool.take().handle for _ in range(5000)}
    assert len(seen) <= 10
    assert not seen & {event.handle for event in held}


def test_closing_leaves_an_event_to_its_last_user(pool):
    stream = cs.Stream()
    event, free = pool.take(), pool.take()
    stream.record(event)
    handle = free.handle
    del free
    pool.close()
    event.synchronize()
    assert not event.is_closed
    assert event.handle != handle
