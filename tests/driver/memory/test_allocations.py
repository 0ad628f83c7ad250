"""The map from addresses to our allocations."""

from __future__ import annotations

import gc
from functools import partial

import numpy as np
import pytest
from helpers.concurrency.thread_crew import together

import cudasync as cs
from cudasync.driver.memory.allocations import ALLOCATIONS, Allocations, is_known_to_driver
from cudasync.driver.ownership.handles import Owned


def owner():
    """An open handle without memory."""
    context = cs.Device(0).context
    context.enter()
    return Owned(context, 1, lambda _: (0,), noun="handle", blocking=False)


def spans(found):
    return [(each.start, each.end) for each in found]


def test_an_address_leads_to_the_allocation_that_holds_it():
    known, one, other = Allocations(), owner(), owner()
    known.note(one, 1000, 100, 0)
    known.note(other, 2000, 100, 0)
    assert [spans(known.at(each)) for each in (999, 1000, 1050, 1101, 2099)] == [
        [], [(1000, 1100)], [(1000, 1100)], [], [(2000, 2100)],
    ]  # fmt: skip


def test_the_end_of_one_and_the_beginning_of_the_next_are_both_meant():
    known, one, other = Allocations(), owner(), owner()
    known.note(one, 1000, 100, 0)
    known.note(other, 1100, 100, 0)
    assert spans(known.at(1100)) == [(1100, 1200), (1000, 1100)]
    assert spans(known.at(1200)) == [(1100, 1200)]


def test_what_has_ended_is_not_there_and_hides_nothing():
    known, old, large = Allocations(), owner(), owner()
    known.note(old, 1050, 10, 0)
    old.close()
    known.note(large, 1000, 100, 0)
    assert spans(known.at(1055)) == [(1000, 1100)]
    large.close()
    assert known.at(1055) == known.live() == []


def test_an_address_that_is_handed_out_anew_is_of_its_new_owner():
    known, old, new = Allocations(), owner(), owner()
    known.note(old, 1000, 100, 0)
    assert known.at(1000)
    old.close()
    known.note(new, 1000, 50, 1)
    (found,) = known.at(1040)
    assert (found.end, found.ordinal) == (1050, 1)


def test_what_ended_is_swept_out():
    known, last = Allocations(), owner()
    for i in range(5000):
        short = owner()
        known.note(short, 10 * i, 10, 0)
        short.close()
    known.note(last, 100_000, 10, 0)
    assert len(known._notes) < 2000
    assert spans(known.live()) == [(100_000, 100_010)]


@pytest.mark.parametrize("make", [cs.DeviceBuffer, cs.PinnedBuffer])
def test_buffers_are_noted_until_they_end(make):
    buffer = make(64)
    start = buffer.ptr
    assert (start, start + 64) in spans(ALLOCATIONS.at(start + 8))
    buffer.close()
    assert (start, start + 64) not in spans(ALLOCATIONS.at(start + 8))


def test_pinned_memory_is_noted_as_long_as_an_array_is_upon_it():
    array = cs.pinned_empty((16,), np.uint32)
    start = array.ctypes.data
    gc.collect()
    assert (start, start + 64) in spans(ALLOCATIONS.at(start))


def test_the_driver_knows_its_memory_and_no_numbers():
    buffer, device = cs.DeviceBuffer(64), cs.Device(0)
    assert is_known_to_driver(buffer.ptr + 8, device)
    assert not is_known_to_driver(1000, device)


def test_what_reaches_into_a_range_is_found_across_what_has_ended():
    known, old, large = Allocations(), owner(), owner()
    known.note(old, 1050, 10, 0)
    old.close()
    known.note(large, 1000, 100, 0)
    assert spans(known.between(1070, 1080)) == [(1000, 1100)]
    large.close()
    assert known.between(0, 5000) == []


def test_memory_is_found_whoever_frees_and_allocates_at_its_address():
    """A sweep removes ended allocations, and never a new allocation at the same address."""
    known = Allocations()

    def work(start):
        for _ in range(2000):
            mine = owner()
            known.note(mine, start, 100, 0)
            assert spans(known.at(start + 50)) == [(start, start + 100)]
            mine.close()
            known._sweep()
            assert known.at(start + 50) == []

    together(*(partial(work, 1000 * (1 + i)) for i in range(4)))


def test_what_ended_is_not_gone_over_at_each_look():
    """Thousands of look-ups, each over thousands of ended allocations, outlasted the planners'
    patience."""
    buffers = [cs.DeviceBuffer(64) for _ in range(200)]
    addresses = [each.ptr for each in buffers]
    live = len(ALLOCATIONS.live()) - len(buffers)
    for each in buffers:
        each.close()
    assert not [found for at in addresses for found in ALLOCATIONS.between(at, at + 64)]
    assert len(ALLOCATIONS._by_address()) <= live + 64
