"""Memory of results: used again without driver calls, ordered by hazards, freed in the end."""

from __future__ import annotations

import gc
import weakref

import pytest

import cudasync as cs
from cudasync import xp
from cudasync.array.memory import pool
from cudasync.testing import Latch


@pytest.fixture(autouse=True)
def _nothing_is_kept():
    gc.collect()
    pool.empty_pools()


def test_a_result_takes_the_block_of_one_that_died():
    x = xp.ones(1000)
    first = x + 1
    place = first.ptr
    del first
    assert pool.idle_bytes() == 4000
    second = x + 2
    assert second.ptr == place
    assert pool.idle_bytes() == 0
    assert second.numpy().tolist() == [3] * 1000


def test_a_view_keeps_the_block_of_its_array():
    x = xp.ones(10)
    z = x + 1
    view = z[3:5]
    del z
    assert (x + 5).ptr != view.ptr - 12
    assert view.numpy().tolist() == [2, 2]


def test_a_block_that_is_still_read_is_not_overwritten_before():
    """Its first users wait on the device; the next one has the same bytes, and another stream."""
    x = xp.ones(100)
    cs.waitall()
    with Latch(cs.Device(0)) as latch:
        cs.engine().push(latch.hold, writes=[x], device=0)
        first = x + 1
        kept = first * 10
        place = first.ptr
        del first
        second = xp.full(100, 7.0)
        assert second.ptr == place
        latch.release()
        assert kept.numpy().tolist() == [20] * 100
        assert second.numpy().tolist() == [7] * 100


def test_a_block_that_dies_in_a_cycle_of_garbage_is_not_freed_under_its_next_user():
    x = xp.ones(50)

    class Holder:
        pass

    for _ in range(3):
        holder = Holder()
        holder.me, holder.array = holder, x + 1
        gone = weakref.ref(holder)
        del holder
        gc.collect()
        assert gone() is None
        made = [x + n for n in range(3)]
        cs.waitall()
        assert [each.numpy()[0] for each in made] == [1, 2, 3]


def test_idle_blocks_are_bounded_and_can_be_let_go():
    x = xp.ones(pool.KEPT_BYTES // 8)
    made = [x + n for n in range(4)]
    del made
    assert pool.idle_bytes() <= pool.KEPT_BYTES
    pool.empty_pools()
    assert pool.idle_bytes() == 0
    for n in range(2 * pool.MOST_SIZES):
        _ = xp.full(n, 1)
    sizes = [len(each) for each in pool._idle.values()]
    assert max(sizes) <= pool.MOST_SIZES


def test_the_steady_state_makes_no_driver_call_for_memory(monkeypatch):
    x = xp.ones(64)
    z = x + x
    for _ in range(3):
        z = x + z

    def refuse(*_):
        raise AssertionError("an allocation")

    monkeypatch.setattr(pool, "Allocation", refuse)
    for _ in range(20):
        z = x + z
    assert z.numpy()[0] == 25
