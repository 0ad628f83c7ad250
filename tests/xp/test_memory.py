"""Memory of results: reused without driver calls, ordered by hazards, freed in the end."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from helpers.concurrency.thread_crew import together

import cudasync as cs
from cudasync import xp
from cudasync.array.memory import free_lists, pool
from cudasync.testing import Latch
from cudasync.xp.initial_contents import to_overwrite


@pytest.fixture(autouse=True)
def _nothing_is_kept():
    let_go()


def let_go():
    """Free all unused memory: making an array handles the dropped ones, and ops free them."""
    gc.collect()
    free_lists.empty_pools()
    _ = xp.empty(1)
    cs.waitall()


def test_a_result_takes_the_block_of_one_that_died():
    x = xp.ones(1000)
    first = x + 1
    place = first.ptr
    del first
    assert free_lists.idle_bytes() == 4000
    cs.waitall()
    second = x + 2
    assert second.ptr == place
    assert free_lists.idle_bytes() == 0
    assert second.numpy().tolist() == [3] * 1000


def test_a_view_keeps_the_block_of_its_array():
    x = xp.ones(10)
    z = x + 1
    view = z[3:5]
    del z
    assert (x + 5).ptr != view.ptr - 12
    assert view.numpy().tolist() == [2, 2]


def test_a_block_that_is_still_read_is_not_overwritten_before(monkeypatch):
    """The block's first users wait on the device. The next array uses it on another stream, since
    there is no room for another block."""
    monkeypatch.setattr(free_lists.Budget, "has_room_for", lambda *_: False)
    x = xp.ones(100)
    # The kernels are loaded before: a driver loads them only once the device is idle.
    assert ((x + 1) * 10).shape == xp.full(100, 7.0).shape
    let_go()
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
    kept_bytes = cs.Device(0).memory().total_bytes // 16
    x = xp.ones(kept_bytes // 8)
    made = [x + n for n in range(4)]
    del made
    assert free_lists.idle_bytes() <= kept_bytes
    free_lists.empty_pools()
    assert free_lists.idle_bytes() == 0
    for n in range(2 * free_lists.MOST_SIZES):
        _ = xp.full(n, 1)
    sizes = [len(each.sizes) for each in free_lists.POOLS.values()]
    assert max(sizes) <= free_lists.MOST_SIZES


def test_many_sizes_in_turn_keep_no_more_than_is_told():
    """Operations that were planned when a list of idle blocks was dropped do not keep that list."""
    free = cs.Device(0).memory().free_bytes
    xs = [xp.ones(1000 + n) for n in range(3 * free_lists.MOST_SIZES)]
    for _ in range(3):
        for x in xs:
            _ = x + x
    del _
    cs.waitall()
    del xs, x
    let_go()
    assert free - cs.Device(0).memory().free_bytes < 1 << 14


def test_what_a_foreign_stream_was_handed_is_not_given_to_the_next_result():
    x = xp.ones(500)
    z = x + 1
    place = z.ptr
    cs.hand_over(z, to=cs.Stream())
    del z
    assert free_lists.idle_bytes() == 0
    z = x + 1
    cs.hand_over(z, to=cs.LEGACY_STREAM)
    cs.take_over(z, after=cs.LEGACY_STREAM)
    del z
    cs.waitall()
    assert free_lists.idle_bytes() == 2000
    assert place


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


def test_idle_blocks_go_where_memory_would_not_suffice():
    """The largest block is kept, whatever its size. Here it is more than half of the device."""
    device = cs.Device(0)
    size = device.memory().total_bytes * 5 // 8
    held = to_overwrite((size,), xp.uint8, device)
    del held
    assert free_lists.idle_bytes() == size
    other = cs.empty(size, np.uint8)
    assert other.nbytes == size
    assert free_lists.idle_bytes() == 0


def test_threads_never_share_a_block():
    x = xp.ones(128)

    def work(number):
        for turn in range(30):
            z = x * float(number) + float(turn)
            assert (z.numpy() == number + turn).all()

    together(*(lambda number=number: work(number) for number in range(4)))
