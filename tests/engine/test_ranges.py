"""The interval map of byte ranges agrees with a byte-by-byte history."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cudasync.engine.hazards import interval_map
from cudasync.engine.hazards.history import History
from cudasync.engine.hazards.interval_map import IntervalMap, Region

SIZE = 12


class Done:
    """A stand-in for an op: a state looks only at its end."""

    def __init__(self, finished: bool = False) -> None:
        self.finished = finished
        self.is_poisoned = False


regions = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(
    lambda pair: Region(min(pair), max(pair))
)
actions = st.lists(st.tuples(st.sampled_from(["read", "write", "forget"]), regions), max_size=20)


@given(actions)
def test_every_byte_knows_its_last_writer_and_the_readers_since(script):
    ranges = IntervalMap()
    writer: list[object] = [None] * SIZE
    readers: list[list[object]] = [[] for _ in range(SIZE)]
    for action, region in script:
        op = Done()
        span = range(region.start, region.end)
        if action == "read":
            for state in ranges.read(region):
                state.add_reader(op)
            for byte in span:
                readers[byte].append(op)
        elif action == "write":
            ranges.write(region, History(0, op))
            for byte in span:
                writer[byte], readers[byte] = op, []
        else:
            ranges.forget(region)
            for byte in span:
                writer[byte], readers[byte] = None, []
        for byte in range(SIZE):
            found = ranges.peek(Region(byte, byte + 1))
            assert len(found) <= 1
            state = found[0] if found else History(0)
            assert (state.writer, state.readers) == (writer[byte], readers[byte])
        assert all(start < end for start, end, _ in ranges.entries)
        assert all(a[1] <= b[0] for a, b in pairwise(ranges.entries))


some_regions = st.lists(regions, max_size=3).map(tuple)


scripts = st.lists(st.tuples(some_regions, some_regions), max_size=8)


class SplitsOneByOne(IntervalMap):
    """The planted bug: a later region splits the states that an earlier region returned."""

    def read_all(self, regions):
        return [state for region in regions for state in self.read(region)]


@given(scripts)
def test_an_op_that_names_overlapping_ranges_is_known_to_every_byte_of_them(script):
    check_every_byte(IntervalMap(), script)


def test_the_check_of_overlapping_ranges_can_fail():
    phases = [Phase.generate]
    search = settings(max_examples=500, derandomize=True, database=None, phases=phases)
    with pytest.raises(AssertionError):
        search(given(scripts)(lambda script: check_every_byte(SplitsOneByOne(), script)))()


def check_every_byte(ranges, script):
    writer: list[object] = [None] * SIZE
    readers: list[set[object]] = [set() for _ in range(SIZE)]
    for read, written in script:
        op = Done()
        for state in ranges.read_all(read):
            state.add_reader(op)
        for region in written:
            ranges.overwrite(region, op)
        for region in read:
            for byte in range(region.start, region.end):
                readers[byte].add(op)
        for region in written:
            for byte in range(region.start, region.end):
                writer[byte], readers[byte] = op, set()
        for byte in range(SIZE):
            found = ranges.peek(Region(byte, byte + 1))
            state = found[0] if found else History(0)
            assert (state.writer, set(state.readers)) == (writer[byte], readers[byte])


@given(actions)
def test_what_is_found_by_its_region_is_the_state_that_stands_for_it(script):
    ranges = IntervalMap()
    for action, region in script:
        if action == "read":
            ranges.read(region)
        elif action == "write":
            ranges.overwrite(region, Done())
        else:
            ranges.forget(region)
            if not ranges.peek(region):
                ranges.note_untouched(region)
        for start, end, state in ranges.entries:
            assert ranges.find(Region(start, end)) is state
        for known, state in list(ranges.exact.items()):
            assert ([] if state is None else [state]) == ranges.peek(known)


def test_untouched_regions_without_number_are_not_all_known(monkeypatch):
    monkeypatch.setattr(interval_map, "MOST_EXACT", 8)
    ranges = IntervalMap()
    for start in range(100):
        ranges.note_untouched(Region(start, start + 1))
        assert Region(start, start + 1) in ranges.exact
        assert len(ranges.exact) <= 8


def test_a_write_leaves_one_range():
    ranges = IntervalMap()
    for start in range(0, 10, 2):
        ranges.write(Region(start, start + 2), History(0))
    assert len(ranges) == 5
    ranges.write(Region(0, 10), History(0))
    assert len(ranges) == 1


def test_a_read_splits_only_where_it_begins_and_ends():
    ranges = IntervalMap()
    ranges.write(Region(0, 10), History(0))
    assert len(ranges.read(Region(3, 7))) == 1
    assert [entry[:2] for entry in ranges.entries] == [(0, 3), (3, 7), (7, 10)]


def test_peeking_changes_nothing():
    ranges = IntervalMap()
    ranges.write(Region(0, 10), History(0))
    assert len(ranges.peek(Region(3, 20))) == 1
    assert ranges.peek(Region(10, 20)) == []
    assert len(ranges) == 1


def test_quiet_ranges_are_swept_and_others_stay():
    ranges = IntervalMap()
    busy = Done()
    for index in range(3000):
        writer = busy if index % 100 == 0 else Done(finished=True)
        ranges.write(Region(2 * index, 2 * index + 1), History(0, writer))
        ranges.sweep()
    ranges.sweep_at = 0
    ranges.sweep()
    assert len(ranges) == 30
    assert all(state.writer is busy for _, _, state in ranges.entries)


def test_the_map_is_swept_also_where_each_planner_takes_over_from_another():
    """Each takeover copies the map. The copies must not postpone the next sweep."""
    ranges = IntervalMap()
    for index in range(5000):
        ranges = ranges.copy(index)
        writer = Done(finished=True)
        ranges.write(Region(2 * index, 2 * index + 1), History(index, writer))
        ranges.sweep()
        assert len(ranges) <= 1024


def test_reading_for_ever_keeps_few_readers():
    state = History(0)
    for _ in range(10_000):
        state.add_reader(Done(finished=True))
    assert len(state.readers) < 64


@given(actions, actions)
def test_a_copy_for_another_epoch_is_changed_alone(before, after):
    """The successor does not see the late writes of a superseded planner."""
    ranges = IntervalMap(0)
    play(ranges, before)
    successor = ranges.copy(1)
    seen = history(successor)
    play(ranges, after)
    assert history(successor) == seen
    own = history(ranges)
    play(successor, after)
    assert history(ranges) == own


parts = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda drawn: Region(drawn[0], min(SIZE, drawn[0] + drawn[1]))
)


class SplitsInPlace(IntervalMap):
    """The planted bug: the part of a split range keeps the state object of the whole range."""

    def read(self, region):
        (kept,) = self.peek(region) or (History(0),)
        found = super().read(region)
        if len(found) == 1 and kept.epoch == self.epoch:
            index = next(i for i, entry in enumerate(self.entries) if entry[2] is found[0])
            self.entries[index] = (*self.entries[index][:2], kept)
            return [kept]
        return found


def leave_in_the_middle(ranges, region, is_write):
    """A planner begins an op, is superseded, and stores its result late."""
    ranges.write(Region(0, SIZE), History(0, Done()))
    successor = ranges.copy(1)
    (found,) = ranges.read(region)
    op = Done()
    found.overwrite(op) if is_write else found.add_reader(op)
    for byte in range(SIZE):
        (state,) = successor.peek(Region(byte, byte + 1))
        knows = state.writer is op or op in state.readers
        assert not knows or region.start <= byte < region.end


@given(parts, st.booleans())
def test_what_a_planner_stores_late_is_seen_for_what_its_op_touches_at_most(region, is_write):
    leave_in_the_middle(IntervalMap(0), region, is_write)


def test_the_check_of_late_stores_can_fail():
    with pytest.raises(AssertionError):
        leave_in_the_middle(SplitsInPlace(0), Region(3, 7), is_write=True)


def play(ranges, script):
    for action, region in script:
        if action == "read":
            for state in ranges.read(region):
                state.add_reader(Done())
        elif action == "write":
            ranges.write(region, History(ranges.epoch, Done()))
        else:
            ranges.forget(region)


def history(ranges):
    """The history of each byte, as a read shows it. The read makes the states the map's own."""
    return [
        [(state.writer, list(state.readers)) for state in ranges.read(Region(byte, byte + 1))]
        for byte in range(SIZE)
    ]
