"""`memory_stats` and `empty_cache`: each byte of the arrays counts once, at its place."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
from helpers.arrays.scarce_memory import settle
from helpers.concurrency.thread_crew import PATIENCE_S, comes_true, engine_of, held_by, together
from helpers.driver.call_counts import counted_calls
from helpers.repository.subprocesses import assert_runs_clean

import cudasync as cs
from cudasync import xp
from cudasync.array.memory import free_lists, holdings
from cudasync.array.memory.holdings import Tally

KIB = 1024


@pytest.fixture(autouse=True)
def before():
    """The numbers after other tests' garbage is freed."""
    settle()
    return cs.memory_stats(0)


def gained(before: cs.MemoryStats, device: int = 0) -> tuple[int, int, int]:
    """The increase since `before`: bytes in use, cached, pending."""
    now = cs.memory_stats(device)
    return (
        now.in_use_bytes - before.in_use_bytes,
        now.cached_bytes - before.cached_bytes,
        now.pending_bytes - before.pending_bytes,
    )


def test_an_array_is_in_use_until_its_last_view_is_gone_and_then_it_is_nobodys(before):
    x = cs.zeros(3 * KIB, np.uint8)
    view = x[5:9]
    assert gained(before) == (3 * KIB, 0, 0)
    del x
    assert gained(before) == (3 * KIB, 0, 0)
    del view
    settle()
    assert gained(before) == (0, 0, 0)


def test_a_result_is_cached_when_it_dies_until_the_cache_is_emptied(before):
    x = cs.zeros(KIB, np.float32)
    y = x + x
    assert gained(before) == (8 * KIB, 0, 0)
    del y
    assert gained(before) == (4 * KIB, 4 * KIB, 0)
    assert cs.empty_cache() == 4 * KIB
    cs.waitall()
    assert gained(before) == (4 * KIB, 0, 0)
    assert cs.empty_cache() == 0


def test_what_waits_for_its_last_use_is_pending(before):
    gate = threading.Event()
    with engine_of(workers=1) as engine:
        x = cs.zeros(KIB, np.uint8)
        engine.push(held_by(gate), reads=[x])
        del x
        noted = gained(before)
        cs.empty_cache()  # The note of its end is handled: the free is pushed.
        pushed = gained(before)
        gate.set()
        assert noted == pushed == (0, 0, KIB)
        engine.waitall(PATIENCE_S)
        assert gained(before) == (0, 0, 0)


def test_the_peak_stays_and_the_steady_state_allocates_nothing(before):
    x = cs.zeros(KIB, np.float32)
    # The sums are independent: until many blocks are there, a result has one of its own.
    for _ in range(80):
        y = x + x
    then = cs.memory_stats(0)
    with counted_calls() as calls:
        for _ in range(50):
            y = x + x
    assert y.numpy().tolist() == [0] * KIB
    now = cs.memory_stats(0)
    assert now.allocation_count == then.allocation_count > before.allocation_count
    assert not [name for name in calls if "Mem" in name], calls
    large = cs.empty(1 << 20, np.uint8)
    peak = cs.memory_stats(0).peak_bytes
    assert peak >= then.in_use_bytes + (1 << 20)
    del large
    settle()
    assert cs.memory_stats(0).peak_bytes == peak


def test_each_device_has_its_own(before):
    ordinal = 1 % cs.device_count()
    other = cs.memory_stats(ordinal)
    x = cs.zeros(KIB, np.float32, device=ordinal)
    y = x + x
    assert gained(other, ordinal) == (8 * KIB, 0, 0)
    del y
    if ordinal:
        assert gained(before) == (0, 0, 0)
        assert cs.empty_cache(0) == 0
    assert cs.empty_cache(cs.Device(ordinal)) == 4 * KIB
    with pytest.raises(TypeError, match="device= takes"):
        cs.memory_stats("cpu")


def test_a_reset_begins_the_books_anew():
    device = cs.Device(2 % cs.device_count())
    x = cs.zeros(KIB, np.uint8, device=device)
    cs.waitall()
    device.reset()
    del x
    y = cs.zeros(2 * KIB, np.uint8, device=device)
    now = cs.memory_stats(device)
    assert (now.in_use_bytes, now.pending_bytes, now.allocation_count) == (2 * KIB, 0, 1)
    assert now.peak_bytes == 2 * KIB
    assert y.nbytes == 2 * KIB


def test_it_is_a_value_and_prints_as_a_table(before):
    assert "MemoryStats(device=0, in_use_bytes=" in repr(before)
    lines = str(before).splitlines()
    assert lines[0].startswith("memory of Device(0) in bytes")
    told = [int(line.split()[-1].replace(",", "")) for line in lines[1:]]
    assert told[:4] == list(dataclasses.astuple(before)[1:5])
    assert told[4:] == [
        before.cache_limit_bytes, before.other_bytes, before.free_bytes, before.total_bytes,
        before.held_bytes,
    ]  # fmt: skip
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.peak_bytes = 0


def test_many_threads_lose_no_byte(before):
    def work():
        for n in range(40):
            x = xp.ones(n + 1)
            y = x + x
            del x
            assert y.nbytes == 4 * (n + 1)

    together(*[work] * 4)
    # An engine thread may refer to the op that it issued last for a moment longer.
    assert comes_true(lambda: settle() or gained(before) == (0, 0, 0)), gained(before)
    tally = Tally()
    together(*[lambda: [tally.add(step) for _ in range(500) for step in (3, -3)]] * 4)
    tally.add(100)
    assert 100 <= tally.peak <= 112


def test_who_adds_up_and_is_suspended_holds_nobody_up():
    tally = Tally()
    assert tally._adding.acquire(blocking=False)
    tally.add(7)
    tally.add(-7)
    tally._adding.release()
    tally.add(1)
    assert tally.peak == 7


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "test"),
    [
        (holdings.Holding, "is_over", True, test_what_waits_for_its_last_use_is_pending),
        (holdings.Holding, "is_over", False, test_what_waits_for_its_last_use_is_pending),
        (
            free_lists,
            "_homes",
            lambda ordinal: [],
            test_a_result_is_cached_when_it_dies_until_the_cache_is_emptied,
        ),
    ],
    ids=["all is over", "nothing is ever over", "the cache is overlooked"],
)
def test_a_planted_bug_is_found(owner, name, wrong, test, monkeypatch):
    monkeypatch.setattr(owner, name, wrong)
    settle()
    begin = cs.memory_stats(0)
    with pytest.raises(AssertionError):
        test(begin)


# Arrays of a size that fits sixteen times, which live and die behind kernels and held streams.
SCARCE = """
import random
chooser, arrays = random.Random(SEED), []
engine = cs.Engine(streams=3)
with engine:
    for round in range(120):
        size = chooser.choice([1 << 18, 1 << 20])
        x = cs.empty(size, np.float32)
        x += 1
        arrays.append(x)
        del x
        while len(arrays) > 6 or (arrays and chooser.random() < 0.3):
            arrays.pop(chooser.randrange(len(arrays)))
        if chooser.random() < 0.2 and arrays:
            chooser.choice(arrays).wait()
        s = cs.memory_stats()
        held = s.in_use_bytes + s.cached_bytes + s.pending_bytes
        assert held <= s.total_bytes, f"round {round}: {s}"
        assert sum(x.nbytes for x in arrays) <= s.in_use_bytes, f"round {round}: {s}"
    arrays.clear()
    engine.waitall()
    s = cs.memory_stats()
    assert s.in_use_bytes == 0, str(s)
"""


@pytest.mark.parametrize("scheduler", ["fifo", "threaded", "seed=3"])
def test_arrays_never_hold_more_memory_than_the_device_has(scheduler):
    """The driver uses memory again before a thread has learnt that its free is over."""
    for seed in range(2):
        assert_runs_clean(
            SCARCE.replace("SEED", str(seed)),
            CUDASYNC_DEVICE="soft",
            CUDASYNC_SOFTGPU_MEMORY="64",
            CUDASYNC_SOFTGPU_SCHEDULER=scheduler,
        )


def test_memory_that_the_device_has_freed_is_not_pending_before_a_wait(before):
    with engine_of(workers=1):
        for _ in range(4):
            x = cs.zeros(KIB, np.float32)
            x += 1
            assert x.numpy()[0] == 1
            del x
        cs.empty_cache()
        # The free of the last one may be under way.
        assert comes_true(lambda: gained(before) == (0, 0, 0))
