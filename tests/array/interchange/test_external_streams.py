"""Memory handed over to a foreign stream and taken back: in order, and no thread is blocked."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirArray, TheirStream, is_held_up, pinned, reader

import cudasync as cs
from cudasync.array.interchange.external_streams import MOST_CROSSINGS, crossing
from cudasync.testing import HostLatch


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


def test_what_is_taken_over_waits_for_the_foreign_stream(engine, latch):
    theirs = TheirStream()
    x, y = cs.zeros(4, np.int32), cs.array([1])
    cs.hand_over(x, to=theirs)
    latch.hold(theirs.stream)
    cs.memcpy_async(x, pinned(range(4), np.int32), stream=theirs.stream)
    taken = cs.take_over(x, after=theirs)
    back = pinned([0] * 4, np.int32)
    assert y.numpy() == [1]
    read = cs.copy(back, x)
    assert is_held_up(taken.done)
    assert is_held_up(read.done)
    latch.release()
    read.wait()
    assert back.tolist() == [0, 1, 2, 3]


def test_only_work_up_to_the_take_over_is_waited_for(engine, latch):
    theirs, x = TheirStream(), cs.array([5])
    cs.take_over(x, after=theirs)
    latch.hold(theirs.stream)
    assert x.numpy() == [5]
    assert is_held_up(theirs.stream.query)


def test_a_take_over_after_an_event_is_after_what_it_stood_for_then(engine, latch):
    first, second, x = cs.Stream(), cs.Stream(), cs.array([5])
    event = first.record()
    with HostLatch() as held:
        # The op is issued only after the host op is done. By then the event marks work of another
        # stream, for which the op must not wait.
        engine.push(held.wait, writes=[x])
        taken = cs.take_over(x, after=event)
        latch.hold(second)
        second.record(event)
        held.release()
        taken.wait(timeout=30)
        assert is_held_up(second.query)


def test_a_foreign_stream_waits_for_what_is_handed_over_and_nobody_else_does(engine, latch):
    theirs, x = TheirStream(), cs.array(np.arange(4))
    held = engine.push(latch.hold, device=cs.Device(0), writes=[x])
    cs.hand_over(x, to=theirs)
    assert is_held_up(theirs.stream.query)
    assert is_held_up(held.done)
    latch.release()
    theirs.stream.synchronize()
    assert held.done()


def test_readers_are_waited_for_too_since_a_stranger_may_write(engine, latch):
    theirs, x = TheirStream(), cs.array(np.arange(4))
    x.wait()
    engine.push(latch.hold, device=cs.Device(0), reads=[x])
    cs.hand_over(x, to=theirs)
    assert is_held_up(theirs.stream.query)


def test_what_is_behind_a_host_op_is_handed_over_once_that_is_done(engine):
    theirs, x = TheirStream(), cs.zeros(2, np.int64)
    host, ran = cs.pinned_empty((2,), np.int64), []

    def fill():
        ran.append(True)
        host[:] = 7

    engine.push(fill, writes=[host])
    cs.copy(x, host)
    cs.hand_over(x, to=theirs)
    assert ran
    back = np.zeros(2, np.int64)
    cs.memcpy_async(back, x, stream=theirs)
    theirs.stream.synchronize()
    assert back.tolist() == [7, 7]


def test_there_and_back_again_without_the_host(engine, latch):
    """Our write, a foreign write and our read are blocked at the start, and run in order."""
    theirs, x, back = TheirStream(), cs.zeros(3, np.int32), pinned([0] * 3, np.int32)
    engine.push(latch.hold, device=cs.Device(0), writes=[x])
    cs.copy(x, pinned([1] * 3, np.int32))
    cs.hand_over(x, to=theirs)
    theirs_sees = cs.pinned_empty((3,), np.int32)
    cs.memcpy_async(theirs_sees, x, stream=theirs)
    cs.memcpy_async(x, pinned([2] * 3, np.int32), stream=theirs)
    cs.take_over(x, after=theirs)
    read = cs.copy(back, x)
    assert is_held_up(read.done)
    latch.release()
    read.wait()
    assert theirs_sees.tolist() == [1, 1, 1]
    assert back.tolist() == [2, 2, 2]


def test_variables_and_foreign_arrays_can_be_handed_over(engine, latch):
    token, theirs = cs.Var("token"), TheirArray(np.arange(3))
    latch.hold(theirs.stream)
    cs.take_over(token, theirs, after=theirs.stream)
    seen = reader(engine, token)
    assert is_held_up(seen.done)
    latch.release()
    seen.wait()
    engine.push(latch.hold, device=cs.Device(0), writes=[theirs])
    cs.hand_over(theirs, to=theirs.stream)
    assert is_held_up(theirs.stream.query)


def test_poison_is_not_handed_over(engine):
    x = cs.zeros(4)
    engine.push(lambda: 1 / 0, writes=[x], name="spoil")
    with pytest.raises(cs.OpError, match="spoil"):
        cs.hand_over(x, to=TheirStream())
    taken = cs.take_over(x, after=TheirStream())
    assert taken.exception().op == "spoil"
    engine.clear_errors()


def test_a_stream_that_is_no_good_spoils_nothing(engine):
    x, closed = cs.array([1]), cs.Stream()
    closed.close()
    with pytest.raises(cs.ClosedError):
        cs.hand_over(x, to=closed)
    with pytest.raises(cs.ClosedError):
        cs.take_over(x, after=closed)
    assert x.numpy() == [1]
    engine.waitall()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: cs.hand_over(x, to=7),
        lambda x: cs.take_over(x, after=7),
        lambda x: cs.hand_over(to=cs.Stream()),
        lambda x: cs.take_over(after=cs.Stream()),
        lambda x: cs.take_over("text", after=cs.Stream()),
    ],
)
def test_misuse_is_a_type_error_at_once(engine, wrong):
    with pytest.raises(TypeError):
        wrong(cs.empty(1))


def test_the_serial_engine_hands_over_too():
    with cs.Engine("serial"):
        theirs, x = TheirStream(), cs.array([1, 2])
        cs.take_over(x, after=theirs)
        cs.hand_over(x, to=theirs)
        assert x.numpy().tolist() == [1, 2]


def test_crossings_are_few_and_an_idle_one_is_preferred(device, latch):
    latch.hold(crossing(device))
    seen = set()
    for _ in range(3 * MOST_CROSSINGS):
        latch.hold(stream := crossing(device))
        seen.add(stream.handle)
    assert len(seen) == MOST_CROSSINGS
    latch.release()
    device.synchronize()
    latch.hold(held := crossing(device))
    assert held.handle not in {crossing(device).handle for _ in range(3 * MOST_CROSSINGS)}


def test_a_device_reset_ends_the_crossings(device):
    old = crossing(device)
    # Arrays of other tests, for which no test waited.
    cs.waitall()
    device.reset()
    assert old.is_closed
    assert not crossing(device).is_closed
