"""Which stream an op gets: while a stream is free, an op is behind none that it does not need."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirStream, is_held_up, pinned
from helpers.driver.held_devices import engine_behind
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.engine.device import stream_group
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

    def __init__(self, holds, ops):
        self.holds, self.ops = holds, ops

    def __repr__(self):
        return f"Program({self.holds}, {self.ops})"


# The number of blocked arrays, below the number of streams; then ops on two of six arrays each.
programs = st.builds(
    Program,
    st.integers(1, STREAMS - 1),
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5)), max_size=25),
)


@given(programs)
def test_in_any_program_what_does_not_depend_on_what_is_held_runs(program):
    mix = cs.Module.from_file(KERNELS).kernel("mix")[1, 8]
    with Latch(cs.Device(0)) as latch, cs.Engine(streams=STREAMS) as engine:
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
