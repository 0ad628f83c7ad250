"""Byte ranges: the map agrees with a history kept byte by byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cudasync.engine.ranges import RangeMap, Region
from cudasync.engine.state import State

SIZE = 12


class Done:
    """Stands where an op stands: only its end matters to a state."""

    def __init__(self, finished: bool = False) -> None:
        self.finished = finished
        self.is_poisoned = False


regions = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(
    lambda pair: Region(min(pair), max(pair))
)
actions = st.lists(st.tuples(st.sampled_from(["read", "write", "forget"]), regions), max_size=20)


@given(actions)
def test_every_byte_knows_its_last_writer_and_the_readers_since(script):
    ranges = RangeMap()
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
            ranges.write(region, State(op))
            for byte in span:
                writer[byte], readers[byte] = op, []
        else:
            ranges.forget(region)
            for byte in span:
                writer[byte], readers[byte] = None, []
        for byte in range(SIZE):
            found = ranges.peek(Region(byte, byte + 1))
            assert len(found) <= 1
            state = found[0] if found else State()
            assert (state.writer, state.readers) == (writer[byte], readers[byte])
        assert ranges.starts == sorted(ranges.starts)
        assert all(a < b for a, b in zip(ranges.starts, ranges.ends, strict=True))
        assert all(e <= s for e, s in zip(ranges.ends, ranges.starts[1:], strict=False))


def test_a_write_leaves_one_range():
    ranges = RangeMap()
    for start in range(0, 10, 2):
        ranges.write(Region(start, start + 2), State())
    assert len(ranges) == 5
    ranges.write(Region(0, 10), State())
    assert len(ranges) == 1


def test_a_read_splits_only_where_it_begins_and_ends():
    ranges = RangeMap()
    ranges.write(Region(0, 10), State())
    assert len(ranges.read(Region(3, 7))) == 1
    assert list(zip(ranges.starts, ranges.ends, strict=True)) == [(0, 3), (3, 7), (7, 10)]


def test_peeking_changes_nothing():
    ranges = RangeMap()
    ranges.write(Region(0, 10), State())
    assert len(ranges.peek(Region(3, 20))) == 1
    assert ranges.peek(Region(10, 20)) == []
    assert len(ranges) == 1


def test_quiet_ranges_are_swept_and_others_stay():
    ranges = RangeMap()
    busy = Done()
    for index in range(3000):
        writer = busy if index % 100 == 0 else Done(finished=True)
        ranges.write(Region(2 * index, 2 * index + 1), State(writer))
        ranges.sweep()
    ranges.sweep_at = 0
    ranges.sweep()
    assert len(ranges) == 30
    assert all(state.writer is busy for state in ranges.states)


def test_reading_for_ever_keeps_few_readers():
    state = State()
    for _ in range(10_000):
        state.add_reader(Done(finished=True))
    assert len(state.readers) < 64
