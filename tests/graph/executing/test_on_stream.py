"""A launch on a foreign stream is behind the stream's earlier work, and before its later work."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirStream, is_held_up, pinned
from helpers.driver.stream_capture import RELAXED, begin, end
from helpers.engine_programs.host_programs import host_programs
from helpers.engine_programs.strategies import programs, settings
from helpers.fuzzing.search import first_difference
from helpers.graphs.recorded_programs import graph_differences, recordable
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph import on_stream
from cudasync.testing import HostLatch


@pytest.fixture(autouse=True)
def engine():
    with cs.Engine(workers=2) as engine, cs.use(engine):
        yield engine


@contextmanager
def captured(stream):
    raw = stream.enter()
    begin(raw, RELAXED)
    try:
        yield
    finally:
        end(raw)


def twice_plus_one(x, *, host=None):
    """Double `x`, call `host()` on the host, then add one to `x`."""
    with cs.graph() as g:
        x *= 2
        if host is not None:
            cs.engine().push(host, reads=x)
        x += 1
    return g.instantiate()


def test_a_launch_is_behind_what_the_stream_holds_and_before_what_it_is_given_later(latch):
    theirs, x, back = TheirStream(), cs.array([7]), pinned([0], np.int64)
    executable = twice_plus_one(x)
    cs.hand_over(x, to=theirs)
    latch.hold(theirs.stream)
    cs.memcpy_async(x, pinned([20]), stream=theirs.stream)
    op = executable.launch(theirs)
    cs.memcpy_async(back, x, stream=theirs.stream)
    assert is_held_up(op.done)
    assert is_held_up(theirs.stream.query)
    latch.release()
    theirs.stream.synchronize()
    assert back.tolist() == [41]


def test_with_host_functions_the_call_returns_when_they_have_run():
    theirs, x, back, seen = TheirStream(), cs.array([7]), pinned([0], np.int64), []
    executable = twice_plus_one(x, host=lambda: seen.append(threading.get_ident()))
    executable.launch(theirs)
    assert len(seen) == 1
    cs.hand_over(x, to=theirs)
    cs.memcpy_async(back, x, stream=theirs.stream)
    theirs.stream.synchronize()
    assert back.tolist() == [15]


def test_a_graph_that_touches_nothing_is_between_too(latch):
    theirs, seen = TheirStream(), []
    with cs.graph() as g:
        cs.engine().push(lambda: seen.append(1))
    executable = g.instantiate()
    latch.hold(theirs.stream)
    began = threading.Thread(target=executable.launch, args=(theirs,))
    began.start()
    assert is_held_up(lambda: bool(seen))
    latch.release()
    began.join()
    cs.waitall()
    theirs.stream.synchronize()
    assert len(seen) == 1


STEPS = st.lists(st.sampled_from(["device", "mixed", "x to y", "y to x"]), min_size=2, max_size=8)


def differences(steps):
    """Wrong values in two arrays after a stream's copies with graph launches between them.

    The expected values are those of a serial run.
    """
    theirs = cs.Stream()
    x, y = cs.array([1, 2, 3]), cs.array([10, 20, 30])
    a, b = np.array([1, 2, 3]), np.array([10, 20, 30])
    with cs.graph() as device:
        x += y
    with cs.graph() as mixed:
        y *= 3
        cs.engine().push(lambda: None, reads=y)
        y += x
    graphs = {"device": device.instantiate(), "mixed": mixed.instantiate()}
    cs.hand_over(x, y, to=theirs)
    for step in steps:
        if step == "device":
            a += b
        elif step == "mixed":
            b *= 3
            b += a
        elif step == "x to y":
            b[:] = a
            cs.memcpy_async(y, x, stream=theirs)
        else:
            a[:] = b
            cs.memcpy_async(x, y, stream=theirs)
        if step in graphs:
            graphs[step].launch(theirs)
    cs.take_over(x, y, after=theirs)
    found = [x.numpy().tolist(), y.numpy().tolist()]
    wanted = [a.tolist(), b.tolist()]
    return [] if found == wanted else [f"{found}, not {wanted}"]


@given(STEPS, st.sampled_from(["async", "serial"]))
def test_launches_between_the_work_of_a_stream_are_as_one_after_the_other(steps, mode):
    with cs.Engine(mode) as engine, cs.use(engine):
        assert not differences(steps)


@pytest.mark.parametrize("forgotten", ["come_after", "let_follow"])
def test_a_launch_that_is_not_ordered_with_the_stream_is_found(forgotten, monkeypatch):
    monkeypatch.setattr(on_stream, forgotten, lambda *_: None)
    assert first_difference(differences, STEPS)


def test_what_can_not_be_between_the_work_of_a_stream_is_said_so(engine):
    x, theirs = cs.array([7]), cs.Stream()
    executable = twice_plus_one(x)
    with pytest.raises(TypeError):
        executable.launch(3.5)
    refused = []

    def inside(stream):
        with pytest.raises(ValueError, match="an op cannot launch a graph on a stream") as caught:
            executable.launch(stream)
        refused.append(caught)

    engine.push(inside, writes=x, device=0).wait()
    assert refused
    with pytest.raises(cs.RecordingError, match="cannot be recorded"), cs.graph():
        executable.launch(theirs)
    with captured(theirs), pytest.raises(ValueError, match="is being captured"):
        executable.launch(theirs)
    assert x.numpy() == [7]


def test_a_stream_that_is_captured_is_neither_taken_over_nor_handed_to():
    x, theirs = cs.array([7]), cs.Stream()
    with captured(theirs):
        with pytest.raises(ValueError, match="is being captured"):
            cs.take_over(x, after=theirs)
        with pytest.raises(ValueError, match="is being captured"):
            cs.hand_over(x, to=theirs)
        # The capture is valid, and the array is unchanged.
        assert x.numpy() == [7]


def test_a_stream_does_not_follow_what_is_poisoned(engine):
    x, theirs = cs.array([7]), cs.Stream()
    executable = twice_plus_one(x)
    engine.push(lambda: 1 / 0, writes=x)
    with pytest.raises(cs.OpError, match="division"):
        executable.launch(theirs)
    engine.clear_errors()


@pytest.mark.usefixtures("rounds_stay")
def test_a_block_is_between_the_work_of_a_stream_too():
    theirs, x, back = TheirStream(), cs.array([1]), pinned([0], np.int64)
    with cs.graph() as g, g.repeat(3):
        x *= 2
        cs.engine().push(lambda: None, reads=x)
    executable = g.instantiate()
    cs.hand_over(x, to=theirs)
    cs.memcpy_async(x, pinned([5]), stream=theirs.stream)
    executable.launch(theirs)
    cs.memcpy_async(back, x, stream=theirs.stream)
    theirs.stream.synchronize()
    assert back.tolist() == [40]


def test_a_stream_does_not_follow_a_launch_of_which_something_failed(engine):
    a, b = cs.Var("a"), cs.Var("b")
    with cs.graph() as g:
        cs.engine().push(lambda: 1 / 0, writes=a, name="divide")
        cs.engine().push(lambda: None, writes=b)
    executable = g.instantiate()
    with pytest.raises(cs.OpError, match="divide"):
        executable.launch(cs.Stream())
    b.wait()
    engine.clear_errors()


def test_a_launch_waits_for_nobody_else(engine):
    x, theirs = cs.array([7]), cs.Stream()
    with HostLatch() as held:
        engine.push(held.wait)
        twice_plus_one(x).launch(theirs)
        assert x.numpy() == [15]
        held.release()


@given(programs(max_steps=12, ordered=True).map(recordable), settings())
def test_a_foreign_stream_changes_nothing_else_of_a_launch(program, setting):
    assert not graph_differences(program, setting, 2, beside=True, on_stream=True)


@given(host_programs(), settings())
def test_what_is_poisoned_poisons_only_what_needs_it(program, setting):
    assert not graph_differences(program, setting, 2, beside=True, on_stream=True)
