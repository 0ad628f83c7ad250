"""Events on loan: they come back whole, whatever becomes of the borrower."""

from __future__ import annotations

import gc

import cudasync as cs
from cudasync.engine.events import EventPool
from cudasync.engine.trace import Counters


def test_an_event_whose_borrower_ended_in_a_cycle_can_be_recorded_again():
    pool = EventPool(cs.Device(0), timing=False, counters=Counters())
    stream = cs.Stream()
    loan = pool.take()
    event = loan.event.handle
    stream.record(loan.event)
    cycle = [loan]
    cycle.append(cycle)
    del loan, cycle
    gc.collect()
    # Whatever is made next destroys what finalisers have noted.
    cs.Event()
    again = pool.take()
    assert again.event.handle == event
    stream.record(again.event)
    stream.synchronize()
