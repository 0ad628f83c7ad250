"""The explored orders of a program leave exactly the results that CUDA's rules allow.

The tests find the allowed orders by trying all of them on a list of numbers.
"""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cudasync.softgpu.core.exploration.footprints import Footprint
from cudasync.softgpu.core.exploration.session import Session
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.streams.stream_manager import StreamManager

CELLS = 3
# Stream 0 is the legacy default stream, 1 is blocking, the others are non-blocking.
streams = st.integers(0, 3)
cells = st.integers(0, CELLS - 1)
events = st.integers(0, 1)
steps = st.one_of(
    st.tuples(st.just("set"), streams, cells, st.integers(1, 9)),
    st.tuples(st.just("copy"), streams, cells, cells),
    st.tuples(st.just("record"), streams, events, st.just(0)),
    st.tuples(st.just("wait"), streams, events, st.just(0)),
    st.tuples(st.just("until set"), streams, cells, st.just(0)),
    st.tuples(st.just("synchronize"), streams, st.just(0), st.just(0)),
)
programs = st.lists(steps, min_size=1, max_size=8)
patient = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def behind(program):
    """For each step, the steps that must come before it, computed in the plainest way."""
    before = []
    # The steps that each stream, each event and the host come after.
    last = [set(), set(), set(), set()]
    recorded, seen = {}, set()
    for number, (verb, stream, what, _) in enumerate(program):
        mine = set(seen)
        if verb == "synchronize":
            joined = (0, 1) if stream == 0 else (stream,)
            for each in joined:
                seen |= last[each]
            before.append(set(seen))
            continue
        if verb == "wait" and what not in recorded:
            # This wait enqueues nothing.
            before.append(set())
            continue
        for each in (0, 1) if stream < 2 else (stream,):
            mine |= last[each]
        if verb == "wait":
            mine |= recorded[what]
        before.append(mine)
        last[stream] = mine | {number}
        if verb == "record":
            recorded[what] = last[stream]
    return before


def everything_possible(program):
    """All possible final contents of the cells, and None if all streams may be stuck."""
    before = behind(program)
    found, known = set(), set()

    def go_on(done, values):
        if (done, values) in known:
            return
        known.add((done, values))
        if len(done) == len(program):
            found.add(values)
        ways_on = 0
        for number, (verb, _, first, second) in enumerate(program):
            is_held = verb == "until set" and not values[first]
            if number not in done and before[number] <= done and not is_held:
                ways_on += 1
                after = list(values)
                if verb == "set":
                    after[first] = second
                elif verb == "copy":
                    after[first] = values[second]
                go_on(done | {number}, tuple(after))
        if not ways_on and len(done) < len(program):
            found.add(None)

    go_on(frozenset(), (0,) * CELLS)
    return found


def play(machine, program):
    """Make the calls of a program, and return the addresses of its cells."""
    verbs, memory = machine.streams, machine.memory
    made = [verbs.get(0), verbs.create(0), verbs.create(1), verbs.create(1)]
    places = [memory.allocate_device(4).start for _ in range(CELLS)]
    recorded = [verbs.create_event(0) for _ in range(2)]
    for place in places:
        ctypes.memset(place, 0, 4)
    for verb, index, first, second in program:
        stream = made[index]
        match verb:
            case "set":
                machine.transfers.fill(stream, places[first], bytes([second]), 4)
            case "copy" if first != second:
                ends = (memory.place(places[cell], 4) for cell in (first, second))
                machine.transfers.copy(stream, *ends, 4)
            case "until set":
                verbs.wait_value(stream, places[first], 1, 0, 4)
            case "record":
                verbs.record(recorded[first], stream)
            case "wait":
                verbs.wait(stream, recorded[first])
            case "synchronize":
                verbs.synchronize(stream)
    for stream in made[1:]:
        verbs.destroy(stream.handle)
    return places


def explored(program):
    """The final cells of each run, and the doubts: reasons why there might be more orders."""
    machine = Machine(total_bytes=1 << 16)
    machine.push(machine.retain_primary(machine.device(0)))
    session = Session(machine)
    found = []
    while session.next():
        places = play(machine, program)
        machine.streams.synchronize_context(machine.context())
        if not session._executor.search.is_redundant:
            found.append(tuple(ctypes.string_at(place, 1)[0] for place in places))
        for place in places:
            machine.memory.free(place)
    report = session.report()
    session.end()
    assert report["orders"] == len(found)
    return found, report["doubts"]


@patient
@given(programs)
def test_all_that_may_come_of_a_program_is_seen(program):
    possible = everything_possible(program)
    # Deadlocks are reported only where no other thread is left; see `test_deadlocks.py`.
    assume(None not in possible)
    found, doubts = explored(program)
    assert doubts == []
    assert set(found) == possible


def test_a_program_of_which_several_things_may_come():
    program = [("set", 2, 0, 1), ("set", 3, 1, 2), ("copy", 2, 1, 0), ("copy", 3, 0, 1)]
    found, _ = explored(program)
    assert set(found) == everything_possible(program)
    assert len(set(found)) > 1


FORK = [("set", 2, 0, 1), ("record", 2, 0, 0), ("wait", 3, 0, 0), ("set", 3, 0, 2)]


def test_what_a_wait_puts_behind_is_not_tried_before():
    assert explored(FORK) == ([(2, 0, 0)], [])


@pytest.mark.parametrize(
    ("program", "bug"),
    [
        # Shows an order that cannot happen.
        (FORK, (StreamManager, "wait", lambda self, stream, event: None)),
        # Misses an order that can happen.
        ([*FORK, ("set", 2, 0, 3)], (Footprint, "conflicts", lambda self, other: False)),
    ],
    ids=["a wait holds nobody", "nothing is in anybody's way"],
)
def test_a_planted_bug_is_found(program, bug, monkeypatch):
    assert set(explored(program)[0]) == everything_possible(program)
    monkeypatch.setattr(*bug)
    assert set(explored(program)[0]) != everything_possible(program)
