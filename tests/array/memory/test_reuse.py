"""Memory of dead results is used again without an order that the program does not need."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers.arrays.scarce_memory import ROOM, little_memory
from hypothesis import example, given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.memory import free_lists, pool, reuse
from cudasync.testing import Latch

SIZE = 256
INPUTS = 3


@pytest.fixture(autouse=True)
def _nothing_is_idle():
    settle()
    yield
    settle()


def settle():
    gc.collect()
    cs.waitall()
    for each in free_lists.POOLS.values():
        each.sizes.clear()
        each.budget._share = 1.0


# Programs: a step adds or multiplies two live arrays, or drops one of them.

_at = st.integers(0, 7)
STEPS = st.one_of(
    st.tuples(st.just("add"), _at, _at),
    st.tuples(st.just("sum"), _at, _at),
    st.tuples(st.just("drop"), _at, _at),
)
CHAINS = [("add", n % INPUTS, n % INPUTS) for n in range(3)] + [
    step for n in range(4) for step in (("add", 3 + n % 3, 3 + n % 3), ("drop", 3 + n % 3, 0))
]


def run(program, inputs, *, drops):
    """Run it; return the live arrays, in their order."""
    live, dropped = list(inputs), []
    for verb, i, j in program:
        x, y = live[i % len(live)], live[j % len(live)]
        if verb == "add":
            live.append(x + y)
        elif verb == "sum":
            live.append(xp.sum(x) + y)
        elif len(live) > INPUTS:
            dropped.append(live.pop(INPUTS + i % (len(live) - INPUTS)))
        if drops:
            dropped.clear()
        del x, y
    return live


def false_orders(program, *, drops):
    """The pairs of ops that only memory orders, and the values of live arrays.

    A later op on a stream comes after an earlier one anyway. The device begins nothing before all
    is pushed, so no user of any memory is over.
    """
    settle()
    inputs = [cs.array(np.arange(SIZE, dtype=np.float32) + n) for n in range(INPUTS)]
    # Kernels are loaded before: a driver loads them only once the device is idle.
    run(program, inputs, drops=drops)
    settle()
    with cs.profile() as profile, Latch(cs.Device(0)) as latch:
        cs.engine().push(latch.hold, writes=inputs, device=0)
        live = run(program, inputs, drops=drops)
        latch.release()
        cs.waitall()
    before, last_on, found = {}, {}, []
    for record in profile.records:
        needed = [each.on for each in record.before if not each.is_reuse]
        mine = set(needed).union(*(before[each] for each in needed))
        found += [
            (each.on.number, record.number)
            for each in record.before
            if each.is_reuse and each.on not in mine
        ]
        last = last_on.get(record.place)
        before[record] = mine if last is None else mine | {last} | before[last]
        last_on[record.place] = record
    return found, [each.numpy().tolist() for each in live]


@given(st.lists(STEPS, max_size=12))
@example(CHAINS)
def test_dropping_results_adds_no_order(program):
    waits = cs.memory_stats(0).waiting_reuses
    none, kept = false_orders(program, drops=False)
    found, dropped = false_orders(program, drops=True)
    assert cs.memory_stats(0).waiting_reuses == waits
    assert (none, found) == ([], [])
    assert kept == dropped


PLANTED = {
    "any idle block is taken": (pool, "is_in_use", lambda _: False),
    "all comes before": (reuse, "_comes_before", lambda *_: True),
    "all is over": (reuse, "_is_known_to_be_over", lambda _: True),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_false_order_is_found(bug, monkeypatch):
    monkeypatch.setattr(*PLANTED[bug])
    assert false_orders(CHAINS, drops=True)[0]


def test_a_result_takes_the_memory_of_its_own_chain():
    """Nothing is over, and a chain of two live results needs three blocks, however long it is."""
    x = cs.zeros(SIZE, np.float32)
    assert (x + 1).shape == x.shape
    settle()
    with Latch(cs.Device(0)) as latch:
        cs.engine().push(latch.hold, writes=[x], device=0)
        places = set()
        y = x
        for _ in range(50):
            y = y + 1
            places.add(y.ptr)
        latch.release()
    assert len(places) == 3 - 1
    assert y.numpy()[0] == 50


def addresses(step, turns):
    """The addresses of the results in each turn."""
    return [tuple(step()) for _ in range(turns)]


def test_a_loop_reaches_a_period_of_at_most_two_turns():
    """Each turn depends on all of the last one, on a device that does not begin."""
    w, x = xp.full((8, 8), 0.5), xp.ones((8, 8))
    state = [w]

    def step():
        y = x @ state[0]
        z = xp.tanh(y)
        state[0] = state[0] - 0.1 * xp.sum(z)
        return y.ptr, z.ptr, state[0].ptr

    addresses(step, 3)
    cs.waitall()
    with Latch(cs.Device(0)) as latch:
        cs.engine().push(latch.hold, writes=[x], device=0)
        found = addresses(step, 30)
        latch.release()
    assert found[10:-2] == found[12:]


def test_a_loop_that_reads_a_result_reaches_a_period_of_at_most_two_turns():
    w, x = xp.full((8, 8), 0.5), xp.ones((8, 8))
    state = [w]

    def step():
        y = x @ state[0]
        z = xp.tanh(y)
        loss = xp.sum(z)
        state[0] = state[0] - 0.1 * z
        loss.numpy()
        return y.ptr, z.ptr, loss.ptr, state[0].ptr

    found = addresses(step, 30)
    assert found[10:-2] == found[12:]


def test_memory_is_flat_however_long_independent_work_goes_on():
    x = xp.ones(SIZE)
    then = cs.memory_stats(0)
    for _ in range(1000):
        _ = (x + 1) * 2
    now = cs.memory_stats(0)
    assert now.allocation_count - then.allocation_count <= free_lists._BLOCKS + 3
    assert now.cached_bytes <= now.cache_limit_bytes


def held_up(count):
    """The number of ops that had to wait for memory when so many independent results die at once
    on a device that does not begin."""
    x = cs.zeros(SIZE, np.float32)
    assert (x + 1).shape == x.shape
    cs.waitall()
    then = cs.memory_stats(0).waiting_reuses
    with Latch(cs.Device(0)) as latch:
        cs.engine().push(latch.hold, writes=[x], device=0)
        for _ in range(count):
            _ = x + 1
        latch.release()
    cs.waitall()
    return cs.memory_stats(0).waiting_reuses - then


def test_an_op_waits_for_memory_once_the_budget_is_used():
    assert held_up(10) == 0
    assert held_up(100) > 0
    stats = cs.memory_stats(0)
    assert f"{stats.waiting_reuses:,} waits for memory in use" in str(stats)
    assert f"{stats.cache_limit_bytes:,}" in str(stats)


def test_the_budget_shrinks_when_the_cache_is_emptied_and_grows_when_ops_wait():
    held_up(5)
    full = cs.memory_stats(0).cache_limit_bytes
    cs.empty_cache()
    assert cs.memory_stats(0).cache_limit_bytes <= full / 2
    for _ in range(20):
        cs.empty_cache(0)
    assert held_up(5) > 0
    for _ in range(150):
        held_up(100)
    assert cs.memory_stats(0).cache_limit_bytes == full


def test_results_have_memory_of_their_own_in_at_most_half_of_the_device(monkeypatch):
    total = cs.Device(0).memory().total_bytes
    for share in ("_LEAST_SHARE", "_MOST_SHARE", "_KEPT_SHARE"):
        monkeypatch.setattr(free_lists, share, 1.0)
    home = free_lists.size_among(free_lists.pool_of(cs.Device(0)), total // 5)
    assert home.budget.has_room_for(home)
    held = cs.empty(total // 5 * 2, np.uint8)
    assert not home.budget.has_room_for(home)
    assert held.nbytes


def test_a_program_that_fits_into_memory_still_fits():
    """Two results fit beside the operand, and the program needs no more at a time."""
    device = cs.Device(0)
    x = xp.ones(ROOM // 5, dtype=xp.uint8)
    cs.waitall()
    with little_memory(device, ROOM // 2):
        for _ in range(20):
            y = x + 1
        assert y.numpy()[0] == 2
        del y
    assert cs.memory_stats(0).cache_limit_bytes < device.memory().total_bytes // 64
