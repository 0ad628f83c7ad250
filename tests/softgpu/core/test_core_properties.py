"""Random programs on streams keep CUDA's order of commands under every schedule."""

from __future__ import annotations

import pytest
from helpers.driver.stream_programs import play, programs
from hypothesis import given, settings
from hypothesis import strategies as st

from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.memory.arena import ALIGNMENT, GUARD_BYTES, Arena

repeatable = st.one_of(st.just("fifo"), st.integers(0, 1000).map("seed={}".format))
schedulers = st.one_of(repeatable, st.just("threaded"))


@given(programs, schedulers)
def test_every_schedule_keeps_every_promise(program, scheduler):
    trace, promises, machine = play(program, scheduler)
    runs = [number for number, step in enumerate(program) if step[0] == "run"]
    assert sorted(trace) == runs
    place = {number: index for index, number in enumerate(trace)}
    assert all(place[earlier] < place[later] for earlier, later in promises)
    assert not any(stream.pending for stream in machine.context().streams)
    machine.end()


@given(programs, repeatable)
@settings(max_examples=20)
def test_the_same_schedule_gives_the_same_trace(program, scheduler):
    assert play(program, scheduler)[0] == play(program, scheduler)[0]


def test_a_wait_that_is_left_out_is_seen_by_some_schedule():
    """The check above can fail: without its wait, this program breaks the promised order."""
    program = [("run", 2, 0), ("record", 2, 0), ("wait", 3, 0), ("run", 3, 0)]

    def is_wrong(skip_wait):
        trace, promises, _ = play(program, "fifo", skip_wait=skip_wait)
        return any(trace.index(a) > trace.index(b) for a, b in promises)

    assert not is_wrong(None)
    wrong = 0
    for seed in range(20):
        trace, promises, _ = play(program, f"seed={seed}", skip_wait=2)
        wrong += any(trace.index(a) > trace.index(b) for a, b in promises)
    assert 0 < wrong < 20


sizes = st.integers(1, 5000)


@given(st.lists(st.one_of(sizes, st.integers(-20, -1)), max_size=60))
def test_blocks_of_an_arena_never_touch(actions):
    """A positive action reserves that many bytes, a negative one releases an earlier block."""
    arena = Arena(1 << 16)
    blocks = []
    for action in actions:
        if action > 0:
            start = arena.reserve(action)
            if start is not None:
                assert start % ALIGNMENT == 0
                assert arena.base <= start
                assert start + action <= arena.end
                for other, size in blocks:
                    assert start >= other + size + GUARD_BYTES or other >= start + action
                blocks.append((start, action))
        elif blocks:
            arena.release(*blocks.pop(action % len(blocks)))
    for block in blocks:
        arena.release(*block)
    assert arena.used_bytes == 0
    whole = (1 << 16) - GUARD_BYTES
    assert arena.reserve(whole) is not None
    assert arena.reserve(1) is None


def test_what_is_free_between_small_blocks_can_be_had_in_one_piece():
    """A GPU maps pages, so only the sum of the free bytes counts."""
    arena = Arena(1 << 16)
    blocks = []
    while (start := arena.reserve(1000)) is not None:
        blocks.append(start)
    for start in blocks[::2]:
        arena.release(start, 1000)
    free = arena.size_bytes - arena.used_bytes
    assert arena.reserve(free) is None
    assert arena.reserve(free - GUARD_BYTES) is not None


def test_released_memory_is_poisoned_and_reused_last():
    machine = Machine(total_bytes=1 << 20)
    machine.push(machine.retain_primary(machine.device(0)))
    memory = machine.memory
    first = memory.allocate_device(1000)
    machine.transfers.fill(machine.streams.get(0), first.start, b"\1", 1000)
    memory.free(first.start)
    second = memory.allocate_device(1000)
    assert second.start != first.start
    assert memory.find(first.start) is None
    assert memory.table_of(first.start).find_freed(first.start) is first
    assert "freed at" in first.describe()


@pytest.mark.parametrize("verb", ["query", "sync"])
def test_a_wait_joins_the_default_stream_whatever_it_waits_for(verb):
    """A wait for finished work joins the default stream too. A random program found this bug
    once."""
    play([("record", 1, 0), ("run", 0, 0), ("wait", 1, 0), (verb, 1, 0)], "fifo")
