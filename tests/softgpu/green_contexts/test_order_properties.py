"""Random programs on streams of two green contexts keep the order that CUDA promises."""

from __future__ import annotations

import pytest
from helpers.driver.stream_programs import Note
from hypothesis import given
from hypothesis import strategies as st

from cudasync.softgpu.core.green_contexts.resources import all_multiprocessors
from cudasync.softgpu.core.green_contexts.splits import split_by_count
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.streams.context_events import hold_context, record_context

# Streams 0 and 1 belong to green context 0, stream 2 to green context 1, stream 3 to the primary
# one.
GREEN = (0, 0, 1, None)

streams = st.integers(0, 3)
greens = st.sampled_from([0, 1])
events = st.integers(0, 1)
steps = st.one_of(
    st.tuples(st.just("run"), streams, st.just(0)),
    st.tuples(st.just("run"), streams, st.just(0)),
    st.tuples(st.just("record green"), greens, events),
    st.tuples(st.just("wait green"), greens, events),
    st.tuples(st.just("record primary"), st.just(0), events),
    st.tuples(st.just("wait"), streams, events),
    st.tuples(st.just("replace"), streams, st.just(0)),
    st.tuples(st.just("synchronize green"), greens, st.just(0)),
)
programs = st.lists(steps, max_size=25)
schedulers = st.one_of(
    st.just("fifo"), st.integers(0, 1000).map("seed={}".format), st.just("threaded")
)


def members(green):
    return [index for index, of in enumerate(GREEN) if of == green]


def play(program, scheduler, *, without=None):
    """Run a program without one step; return the trace and the promised pairs (earlier, later)."""
    machine = Machine(total_bytes=1 << 16, scheduler=scheduler)
    device = machine.device(0)
    machine.push(machine.retain_primary(device))
    context, verbs = machine.context(), machine.streams
    parts, _ = split_by_count(all_multiprocessors(0, device.capability), 0, 4)
    made = [
        machine.green_contexts.create(machine.green_contexts.describe([part]), device)
        for part in parts
    ]
    of = [None if green is None else made[green] for green in GREEN]
    real = [verbs.create(1, green=green) for green in of]
    points = [verbs.create_event(0) for _ in range(2)]
    before = [set() for _ in GREEN]
    awaited = [set() for _ in made]
    recorded = [set(), set()]
    trace, promises = [], set()
    for number, (verb, index, what) in enumerate(program):
        event = points[what]
        is_real = number != without
        match verb:
            case "run":
                promises |= {(earlier, number) for earlier in before[index]}
                before[index].add(number)
                machine.executor.enqueue(Note(real[index], trace, number, 0))
            case "record green":
                here = [before[member] for member in members(index)]
                recorded[what] = set().union(*here)
                record_context(machine, event, context, made[index])
            case "wait green":
                awaited[index] |= recorded[what]
                for member in members(index):
                    before[member] |= recorded[what]
                if is_real:
                    hold_context(machine, context, event, made[index])
            case "record primary":
                recorded[what] = set().union(*before)
                record_context(machine, event, context)
            case "wait":
                before[index] |= recorded[what]
                verbs.wait(real[index], event)
            case "replace":
                green = GREEN[index]
                verbs.destroy(real[index].handle)
                real[index] = verbs.create(1, green=of[index])
                # A destroyed stream still finishes its work. The new stream does not wait for that
                # work.
                before[index] = set() if green is None else set(awaited[green])
            case "synchronize green":
                verbs.synchronize_context(context, made[index])
                assert set().union(*(before[member] for member in members(index))) <= set(trace)
    verbs.synchronize_context(context)
    machine.end()
    return trace, promises


def broken(trace, promises):
    place = {number: index for index, number in enumerate(trace)}
    return [(a, b) for a, b in promises if place[a] > place[b]]


@given(programs, schedulers)
def test_every_schedule_keeps_every_promise_of_green_contexts(program, scheduler):
    trace, promises = play(program, scheduler)
    assert sorted(trace) == [number for number, step in enumerate(program) if step[0] == "run"]
    assert not broken(trace, promises)


@pytest.mark.parametrize("later", [("run", 0, 0), ("run", 1, 0)])
def test_a_wait_of_a_green_context_that_is_left_out_is_seen(later):
    program = [("run", 2, 0), ("record green", 1, 0), ("wait green", 0, 0), later]
    seeds = [f"seed={seed}" for seed in range(20)]
    assert not any(broken(*play(program, seed)) for seed in seeds)
    assert any(broken(*play(program, seed, without=2)) for seed in seeds)
