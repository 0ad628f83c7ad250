"""A profile leaves engines unchanged, and its answers take few steps."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import cudasync as cs
from cudasync.profile.analysis import moved, places
from cudasync.profile.record import Record
from cudasync.profile.wait_reasons import blockers, chain
from cudasync.testing import HostLatch


@pytest.mark.parametrize("when", ["before", "inside", "never"])
def test_an_engine_is_ranked_after_a_profile_if_the_program_ranked_it(when):
    with cs.Engine(workers=1) as engine:
        if when == "before":
            engine.push(lambda: None, priority=1).wait()
        with cs.profile():
            engine.push(lambda: None, priority=int(when == "inside")).wait()
        pools = engine._pools.values()
        assert {pool.is_plain for pool in pools} == {when == "never"}
        assert engine._is_plain == (when == "never")
        assert engine._is_direct
        order: list[int] = []
        latch = HostLatch()
        engine.push(latch.wait)
        for priority in (0, 5, -3, 1):
            engine.push(lambda p=priority: order.append(p), priority=priority)
        latch.release()
        engine.waitall()
        assert order == [5, 1, 0, -3]


def on_one_worker(count: int) -> list[Record]:
    made = []
    for number in range(count):
        record = Record(number, "op", "host", "here.py:1", 0.0, place="worker 0")
        record.issued_us = record.start_us = 10.0 * number
        record.found_us = record.end_us = 10.0 * number + 5.0
        made.append(record)
    return made


def calls_of(ask) -> int:
    count = 0

    def tell(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(tell)
    try:
        ask()
    finally:
        sys.setprofile(before)
    return count


def test_places_and_why_take_steps_by_the_number_of_ops():
    few, many = on_one_worker(2000), on_one_worker(8000)
    assert calls_of(lambda: places(many)) < 5 * calls_of(lambda: places(few))

    def why(records):
        return chain(records[-1], blockers(records))

    assert len(why(many)) == 8000
    assert calls_of(lambda: why(many)) < 5 * calls_of(lambda: why(few))


def test_hidden_copies_take_steps_by_the_number_of_ops():
    def beside_copies(count):
        working, copies = on_one_worker(count), on_one_worker(count)
        for copy in copies:
            # The last microsecond of an op, and one microsecond after the op.
            copy.kind, copy.place = "HtoD", "stream 1"
            copy.start_us += 4.0
            copy.end_us += 1.0
        return working + copies

    few, many = beside_copies(500), beside_copies(2000)
    (said,) = moved(many)
    assert (said.total_us, said.hidden_us) == (4000.0, 2000.0)
    assert calls_of(lambda: moved(many)) < 5 * calls_of(lambda: moved(few))


def test_ops_that_two_threads_see_end_at_once_have_their_times():
    """Both a waiter and the stream's watcher see the ops end.

    Of a hundred such profiles three were wrong while the second thread could go on before the first
    had recorded the op.
    """
    for _ in range(100):
        with cs.profile() as profile:
            x = cs.array(np.arange(100, dtype=np.float32))
            (x + 1).numpy()
        assert [each.name for each in profile.records if not each.has_times] == []
