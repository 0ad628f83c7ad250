"""Ops that access all memory: ordered with all memory in use, and poison that stays in bounds."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.engine.hazards.all_memory import Gap
from cudasync.engine.hazards.history import History
from cudasync.engine.hazards.interval_map import Everywhere, IntervalMap, Region

END = (1 << 64) - 1
ALL = Everywhere(0, END)
# Addresses without any memory.
LOW = Everywhere(0, 1000)
PATIENCE_S = 20.0


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine
        engine.clear_errors()


def fail():
    raise ValueError("planned")


class Writer:
    """The part of an op that a state needs."""

    is_fence = False

    def __init__(self, *, finished=False, is_poisoned=False):
        self.finished = finished
        self.is_poisoned = is_poisoned


def test_what_has_no_range_gets_a_gap_and_what_has_one_keeps_it():
    ranges, writer = IntervalMap(), Writer()
    ranges.write(Region(100, 200), History(0, writer))
    states = ranges.read(LOW)
    assert [(low, high, state.is_gap) for low, high, state in ranges.entries] == [
        (0, 100, True), (100, 200, False), (200, 1000, True),
    ]  # fmt: skip
    assert states[1].writer is writer


def test_a_range_across_the_end_is_split():
    ranges = IntervalMap()
    ranges.write(Region(100, 200), History(0, Writer()))
    (state,) = ranges.read(Everywhere(120, 150))
    assert [entry[:2] for entry in ranges.entries] == [(100, 120), (120, 150), (150, 200)]
    ranges.overwrite(Everywhere(120, 150), mine := Writer())
    assert [entry[2].writer is mine for entry in ranges.entries] == [False, True, False]
    assert state.writer is mine


def test_a_gap_is_split_into_gaps_and_written_into_a_state():
    ranges, everything, mine = IntervalMap(), Writer(), Writer()
    ranges.read(LOW)
    ranges.overwrite(LOW, everything)
    (found,) = ranges.read(Region(100, 200))
    assert found.is_gap
    assert found.writer is everything
    assert ranges.find(Region(100, 200)) is None
    ranges.overwrite(Region(100, 200), mine)
    known = ranges.find(Region(100, 200))
    assert known is not None
    assert not known.is_gap
    assert known.writer is mine


def test_a_gap_that_is_named_is_a_state_as_any_once_its_writer_is_over():
    ranges, everything = IntervalMap(), Writer(is_poisoned=True)
    ranges.read(LOW)
    ranges.overwrite(LOW, everything)
    everything.finished = True
    (found,) = ranges.read(Region(100, 200))
    assert not found.is_gap
    assert found.writer is None
    assert ranges.find(Region(100, 200)) is found
    assert [state.is_gap for _, _, state in ranges.entries] == [True, False, True]


def test_reading_everything_twice_leaves_the_ranges_as_they_are():
    ranges = IntervalMap()
    ranges.write(Region(100, 200), History(0, Writer()))
    first = ranges.read(LOW)
    exact = ranges.exact
    assert all(one is other for one, other in zip(first, ranges.read(LOW), strict=True))
    assert ranges.exact is exact


def test_a_failed_op_on_everything_is_forgotten_in_gaps():
    assert Gap(0, Writer(finished=True, is_poisoned=True)).is_quiet
    assert not Gap(0, Writer()).is_quiet


regions = st.builds(lambda a, b: Region(min(a, b), max(a, b)), *2 * [st.integers(0, 50)])
everywheres = st.builds(lambda region: Everywhere(*region), regions)


@given(st.lists(st.tuples(st.one_of(regions, everywheres), st.booleans()), max_size=12))
def test_the_map_keeps_its_rules_and_the_last_writer_of_each_byte(steps):
    ranges, last = IntervalMap(), [None] * 51
    for region, writes in steps:
        ranges.read(region)
        if writes:
            writer = Writer()
            ranges.overwrite(region, writer)
            last[region.start : region.end] = [writer] * (region.end - region.start)
    bounds = [bound for low, high, _ in ranges.entries for bound in (low, high)]
    assert bounds == sorted(bounds)
    assert all(low < high for low, high, _ in ranges.entries)
    found = [None] * 51
    for low, high, state in ranges.entries:
        found[low:high] = [state.writer] * (high - low)
    assert found == last


def test_it_comes_after_and_before_all(engine):
    gate, host, x = threading.Event(), np.zeros(4), cs.zeros(4)
    engine.push(lambda: gate.wait(PATIENCE_S), writes=[x])
    everything = engine.push(lambda: None, reads=[ALL], writes=[ALL])
    later = [engine.push(lambda: None, reads=[each]) for each in (host, x, np.ones(3))]
    assert not any(op.done() for op in (everything, *later))
    gate.set()
    for op in later:
        op.wait(PATIENCE_S)


def test_its_failure_poisons_what_is_ours_and_nothing_that_comes_later(engine):
    x, unnamed = cs.zeros(4), cs.DeviceBuffer(64)
    gate = threading.Event()
    engine.push(lambda: gate.wait(PATIENCE_S), reads=[x])
    failed = engine.push(fail, reads=[ALL], writes=[ALL])
    pushed_before_it_failed = engine.push(lambda: None, reads=[np.ones(64)])
    gate.set()
    assert failed.exception() is not None
    pushed_before_it_failed.wait(PATIENCE_S)
    engine.push(lambda: None, reads=[np.ones(64)]).wait(PATIENCE_S)
    assert cs.array(np.arange(4)).numpy().tolist() == [0, 1, 2, 3]
    for ours in (x, unnamed):
        with pytest.raises(cs.OpError):
            engine.push(lambda: None, reads=[ours]).wait(PATIENCE_S)


def reads_and_writes(engine, *besides):
    return engine.push(lambda: None, reads=[ALL, *besides], writes=[ALL])


def only_reads(engine, *besides):
    return engine.push(lambda: None, reads=[ALL, *besides])


def only_reads_on_a_device(engine, *besides):
    return engine.push(lambda stream: None, reads=[ALL, *besides], device=0)


def is_a_marker(engine, *besides):
    return engine._mark([ALL, *besides])


EACH_WAY = [reads_and_writes, only_reads, only_reads_on_a_device, is_a_marker]


@pytest.mark.parametrize("push", EACH_WAY)
def test_a_failure_in_an_array_of_ours_poisons_it(engine, push):
    x = cs.zeros(4)
    engine.push(fail, writes=[x])
    with pytest.raises(cs.OpError):
        push(engine).wait(PATIENCE_S)


@pytest.mark.parametrize("push", EACH_WAY)
def test_a_failure_elsewhere_stays_where_it_is(engine, push):
    theirs = np.zeros(4)
    engine.push(fail, writes=[theirs]).exception()
    push(engine).wait(PATIENCE_S)
    with pytest.raises(cs.OpError):
        engine.push(lambda: None, reads=[theirs]).wait(PATIENCE_S)


@pytest.mark.parametrize("push", EACH_WAY)
def test_who_names_what_failed_beside_everything_is_told(engine, push):
    theirs = np.zeros(4)
    engine.push(fail, writes=[theirs]).exception()
    with pytest.raises(cs.OpError):
        push(engine, theirs).wait(PATIENCE_S)


@pytest.mark.parametrize("push", EACH_WAY)
def test_a_recording_that_was_not_launched_stops_nobody_who_does_not_name_its_arrays(engine, push):
    x = cs.array(np.arange(4.0))
    with cs.graph() as g:
        made = x + 1
    push(engine).wait(PATIENCE_S)
    # Also behind an op that may have written it.
    with pytest.raises(cs.RecordingError):
        made.numpy()
    g.instantiate().launch()
    assert made.numpy().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("push", EACH_WAY)
def test_who_failed_for_an_array_without_a_value_damages_its_own_arrays(engine, push):
    x = cs.zeros(4)
    with cs.graph():
        made = x + 1
    assert engine.push(lambda: None, reads=[made], writes=[x]).exception() is not None
    with pytest.raises(cs.RecordingError):
        push(engine).wait(PATIENCE_S)


@pytest.mark.parametrize("push", EACH_WAY)
def test_who_names_an_array_without_a_value_beside_everything_is_told(engine, push):
    x = cs.zeros(4)
    with cs.graph():
        made = x + 1
    with pytest.raises(cs.RecordingError):
        push(engine, made).wait(PATIENCE_S)
