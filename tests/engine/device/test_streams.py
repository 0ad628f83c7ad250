"""Which stream an op gets: while a stream is free, an op is behind none that it does not need.

And how many streams there are: as many as independent ops keep busy.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirStream, is_held_up, pinned
from helpers.driver.held_devices import engine_behind
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.engine.device import stream_group
from cudasync.engine.device.timeline import Timeline
from cudasync.testing import Latch

PATIENCE_S = 20.0
KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"
STREAMS = 3


@pytest.fixture
def engine(latch):
    with engine_behind(latch, streams=STREAMS) as engine:
        yield engine


@pytest.fixture
def mix():
    return cs.Module.from_file(KERNELS).kernel("mix")[1, 8]


def array():
    made = cs.zeros(8, np.int32)
    made.wait(PATIENCE_S)
    return made


def each_kind(mix, x, y):
    """A function for each kind of op that reads or writes `x`; some kinds also use `y`."""
    device = x.device
    return {
        "launch": lambda: mix(x, y, np.int32(1), np.uint32(8)),
        "launch that reads": lambda: mix(y, x, np.int32(1), np.uint32(8)),
        "user's": lambda: cs.engine().push(lambda stream: None, writes=[x], device=device),
        "urgent": lambda: cs.engine().push(
            lambda stream: None, writes=[x], device=device, priority=3
        ),
        "copy in": lambda: cs.copy(x, pinned(range(8), np.int32)),
        "copy out": lambda: cs.copy(pinned(range(8), np.int32), x),
        "urgent copy": lambda: cs.copy(pinned(range(8), np.int32), x, priority=2),
        "copy on the device": lambda: cs.copy(y, x),
        "pageable": lambda: cs.copy(np.zeros(8, np.int32), x),
    }


KINDS = list(each_kind(None, type("X", (), {"device": None}), None))


def hold(engine, latch, *things):
    return engine.push(latch.hold, reads=things, writes=things, device=cs.Device(0), name="held")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held_kind", KINDS)
def test_what_is_held_holds_up_nothing_else(engine, latch, mix, kind, held_kind):
    """Ops of one kind wait behind the blocked op, and many ops of another kind do not."""
    x, y, a, b = array(), array(), array(), array()
    # The work on all streams is over, but the engine does not know.
    for _ in range(4 * STREAMS):
        each_kind(mix, array(), array())[kind]()
    cs.Device(0).synchronize()
    held = hold(engine, latch, x, y)
    behind = [each_kind(mix, x, y)[held_kind]() for _ in range(5)]
    for _ in range(6):
        each_kind(mix, a, b)[kind]().wait(PATIENCE_S)
    assert not held.done()
    assert not any(op.done() for op in behind)


@pytest.mark.parametrize("kind", KINDS)
def test_readers_of_what_is_held_leave_a_stream_to_the_others(engine, latch, mix, kind):
    """All streams but one have blocked work, and many independent ops read its results."""
    held = [array() for _ in range(STREAMS - 1)]
    a, b, *targets = [array() for _ in range(2 + 4 * len(held))]
    for x in held:
        hold(engine, latch, x)
    each_kind(mix, a, b)[kind]().wait(PATIENCE_S)
    behind = [
        mix(y, x, np.int32(1), np.uint32(8))
        for x, ys in zip(held, (targets[:4], targets[4:]), strict=True)
        for y in ys
    ]
    behind += [cs.copy(pinned([0] * 8, np.int32), x) for x in held * 3]
    for _ in range(4):
        each_kind(mix, a, b)[kind]().wait(PATIENCE_S)
    assert not any(op.done() for op in behind)


def test_what_joins_held_work_and_other_work_goes_to_the_held(engine, latch, mix):
    held = [array() for _ in range(STREAMS - 1)]
    a, b, c = array(), array(), array()
    for x in held:
        hold(engine, latch, x)
    # This launch takes the remaining stream. The engine does not know that it is over.
    mix(c, c, np.int32(1), np.uint32(8))
    behind = [mix(c, x, np.int32(1), np.uint32(8)) for x in held]
    mix(a, b, np.int32(1), np.uint32(8)).wait(PATIENCE_S)
    assert not any(op.done() for op in behind)


def test_a_wait_for_another_librarys_stream_holds_up_only_what_comes_after_it(engine, latch, mix):
    """There are more such waits than streams, and ops behind them."""
    behind = []
    for _ in range(2 * STREAMS):
        theirs, x = TheirStream(), array()
        latch.hold(theirs.stream)
        behind.append(cs.take_over(x, after=theirs))
        y = array()
        behind.append(mix(y, x, np.int32(1), np.uint32(8)))
        behind.append(cs.copy(pinned([0] * 8, np.int32), x))
    a, b = array(), array()
    for kind in KINDS:
        each_kind(mix, a, b)[kind]().wait(PATIENCE_S)
    assert all(is_held_up(op.done) for op in behind)


def test_a_copy_with_a_priority_overtakes_those_without(engine, latch):
    x, y = array(), array()
    stuck = hold(engine, latch, x)
    late = [cs.copy(pinned([0] * 8, np.int32), x) for _ in range(5)]
    op = cs.copy(pinned([0] * 8, np.int32), y, priority=1)
    at = op._point[0]
    assert at.stream.priority < 0
    assert at not in {each._point[0] for each in late}
    op.wait(PATIENCE_S)
    assert not stuck.done()


def test_a_priority_is_the_streams_as_far_as_the_device_has_it(engine, device):
    found = {}
    for priority in (-5, 0, 1, 2, 1000, 2000):
        op = engine.push(lambda stream: stream.priority, device=device, priority=priority)
        found[priority] = op.result(PATIENCE_S)
    assert found[-5] == found[0] == 0
    assert found[1] == -1
    assert found[1000] == found[2000] <= found[2] <= found[1]


def test_what_shares_a_stream_is_counted(engine, latch, mix):
    def shared():
        return engine.statistics().streams_shared

    a, b, *arrays = [array() for _ in range(2 + STREAMS)]
    first = shared()
    for x in arrays:
        hold(engine, latch, x)
    assert shared() == first
    # Ops behind a stream's shared op do not count.
    for x in arrays:
        mix(x, x, np.int32(1), np.uint32(8))
    assert shared() == first
    mix(a, a, np.int32(1), np.uint32(8))
    assert shared() == first + 1
    engine.push(lambda stream: None, writes=[b], device=cs.Device(0))
    assert shared() == first + 2


@pytest.fixture
def growing(latch):
    """An engine whose number of streams follows the program."""
    with engine_behind(latch) as engine:
        yield engine


def streams_of(engine):
    (streams,) = [each for each in engine._issuer.devices.values() if not each.is_gone]
    return streams.compute.timelines


@pytest.mark.parametrize(
    "count", [stream_group.FIRST + 1, 3 * stream_group.FIRST, stream_group.MOST]
)
def test_independent_work_that_lasts_has_a_stream_for_each(growing, latch, count):
    arrays = [array() for _ in range(count)]
    shared = growing.statistics().streams_shared
    held = [hold(growing, latch, x) for x in arrays]
    assert len({each._point[0] for each in held}) == count
    assert growing.statistics().streams_shared == shared


def test_independent_kernels_have_a_stream_for_each(growing, mix):
    """Kernels that wait for nothing; the device has not begun when the next is launched."""
    arrays = [array() for _ in range(3 * stream_group.FIRST)]
    ops = [mix(x, x, np.int32(1), np.uint32(8)) for x in arrays]
    assert len({each._point[0] for each in ops}) == len(ops)


def test_more_work_than_a_device_has_queues_shares_the_streams(growing, latch, mix):
    many = 2 * stream_group.MOST
    arrays = [array() for _ in range(many)]
    ops = [mix(x, x, np.int32(1), np.uint32(8)) for x in arrays]
    assert len(streams_of(growing)) == stream_group.MOST
    counts = Counter(each._point[0] for each in ops if each._point is not None)
    assert max(counts.values()) <= 3
    growing.waitall(PATIENCE_S)


def test_a_given_number_of_streams_is_not_exceeded(engine, latch):
    arrays = [array() for _ in range(4 * STREAMS)]
    held = [hold(engine, latch, x) for x in arrays]
    assert len({each._point[0] for each in held}) == STREAMS


def test_kernels_that_end_as_fast_as_they_are_launched_need_no_more_streams(growing, mix):
    """The engine does not know that they are over until it asks the driver."""
    arrays = [array() for _ in range(4 * stream_group.FIRST)]
    for x in arrays:
        mix(x, x, np.int32(1), np.uint32(8))
        cs.Device(0).synchronize()
    assert len(streams_of(growing)) == stream_group.FIRST


def test_a_chain_stays_on_its_stream_while_the_number_grows(growing, latch, mix):
    x, *arrays = [array() for _ in range(1 + 3 * stream_group.FIRST)]
    chain = []
    for each in arrays:
        chain.append(mix(x, x, np.int32(1), np.uint32(8)))
        hold(growing, latch, each)
    assert len({each._point[0] for each in chain}) == 1


def test_a_stream_whose_work_has_ended_is_found_again(latch, mix):
    """It was known that all of many streams have work; then the work on one of them ended."""
    many = 3 * stream_group.COMPARED
    with engine_behind(latch, streams=many) as engine:
        x, *arrays = [array() for _ in range(many)]
        ending = mix(x, x, np.int32(1), np.uint32(8))
        for each in arrays:
            mix(each, each, np.int32(1), np.uint32(8))
        (streams,) = [each for each in engine._issuer.devices.values() if not each.is_gone]
        group = streams.compute
        chosen = [group.choose() for _ in range(2)]
        assert all(each.load for each in chosen)
        at = ending._point[0]
        ending.wait(PATIENCE_S)
        assert group.choose() is at


def test_news_that_nobody_tells_are_missed(latch, mix, monkeypatch):
    """A planted bug: an end replaces no news."""
    news = property(lambda group: None, lambda group, news: vars(group).update(news=news))
    monkeypatch.setattr(stream_group.StreamGroup, "news", news, raising=False)
    with pytest.raises(AssertionError):
        test_a_stream_whose_work_has_ended_is_found_again(latch, mix)


def test_streams_do_not_grow_without_need(engine, mix):
    x = array()
    for _ in range(50):
        for kind in KINDS:
            each_kind(mix, x, array())[kind]()
        engine.waitall(PATIENCE_S)
    (streams,) = [each for each in engine._issuer.devices.values() if not each.is_gone]
    for group in (streams.compute, streams.htod, streams.dtoh, streams.free):
        assert len(group.timelines) <= STREAMS
    assert len(streams.awaiting.timelines) == 0
    assert len(streams.pageable.timelines) <= 2


class Program:
    """Blocked writes of some arrays, and ops on these and on other arrays."""

    def __init__(self, streams, holds, ops):
        self.streams, self.ops = streams, ops
        self.holds = holds if streams is None else min(holds, streams - 1)

    def __repr__(self):
        return f"Program({self.streams}, {self.holds}, {self.ops})"


# The number of streams, None for a growing one; of blocked arrays, below it; then ops on two of six
# arrays each.
programs = st.builds(
    Program,
    st.sampled_from([2, STREAMS, STREAMS, 5, None, None]),
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5)), max_size=25),
)


@given(programs)
def test_in_any_program_what_does_not_depend_on_what_is_held_runs(program):
    mix = cs.Module.from_file(KERNELS).kernel("mix")[1, 8]
    with Latch(cs.Device(0)) as latch, cs.Engine(streams=program.streams) as engine:
        arrays = [array() for _ in range(6)]
        tainted = set(range(program.holds))
        for each in tainted:
            hold(engine, latch, arrays[each])
        for kind, first, second in program.ops:
            op = each_kind(mix, arrays[first], arrays[second])[kind]()
            touched = (
                {first}
                if kind.startswith(("user", "urgent", "copy in", "copy out"))
                else {
                    first,
                    second,
                }
            )
            if kind == "pageable":
                touched = {first}
            if touched & tainted:
                tainted |= touched
            else:
                op.wait(PATIENCE_S)
        latch.release()


def test_a_growing_number_that_nobody_measures_is_found(growing, latch, mix, monkeypatch):
    """A planted bug: the driver is taken to say that streams are at work."""
    monkeypatch.setattr(Timeline, "ask", lambda timeline: False)
    with pytest.raises(AssertionError):
        test_kernels_that_end_as_fast_as_they_are_launched_need_no_more_streams(growing, mix)


def test_a_number_that_does_not_grow_is_found(growing, latch, monkeypatch):
    """A planted bug: the driver is taken to say that streams are idle."""
    monkeypatch.setattr(Timeline, "ask", lambda timeline: True)
    with pytest.raises(AssertionError):
        test_independent_work_that_lasts_has_a_stream_for_each(growing, latch, 8)


def test_an_engine_that_goes_behind_what_may_be_held_is_found(engine, latch, mix, monkeypatch):
    """The planted bug of this file: the number of ops alone decides the stream."""
    monkeypatch.setattr(
        stream_group.StreamGroup,
        "choose",
        lambda group, before=(): (
            group.timelines[0] if group.timelines else group.add(group.fresh())
        ),
    )
    a = array()
    hold(engine, latch, array())
    with pytest.raises(TimeoutError):
        mix(a, a, np.int32(1), np.uint32(8)).wait(0.2)
