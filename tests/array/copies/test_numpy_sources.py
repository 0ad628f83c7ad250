"""Copies from NumPy memory that the program changes next: they have the contents as of the call."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S
from helpers.driver.held_devices import engine_behind
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.copies import copy as copies
from cudasync.testing import HostLatch

SHAPE = (6, 8)

# A target of the shape (3, 4), as a part of an array of the shape (6, 8).
PARTS = {
    "a whole array": lambda whole: whole.reshape(-1)[:12].reshape(3, 4),
    "rows with gaps": lambda whole: whole[:3, 2:6],
    "elements with gaps": lambda whole: whole[::2, ::2],
    "backwards": lambda whole: whole[2::-1, 3::-1],
}
TARGETS = {
    "device": lambda: cs.zeros(SHAPE, np.int32),
    "cpu": lambda: xp.zeros(SHAPE, dtype=xp.int32, device="cpu"),
    "numpy": lambda: np.zeros(SHAPE, np.int32),
}


@pytest.fixture
def engine(latch):
    with engine_behind(latch, workers=2) as engine:
        yield engine


def contents(thing):
    return np.asarray(thing.numpy() if hasattr(thing, "numpy") else thing).tolist()


@pytest.mark.parametrize("onto", PARTS)
@pytest.mark.parametrize("out_of", PARTS)
@pytest.mark.parametrize("kind", TARGETS)
def test_a_source_may_change_as_soon_as_the_copy_is_asked_for(engine, latch, kind, onto, out_of):
    # A kernel that the copy needs is loaded before the device is held.
    cs.copy(PARTS[onto](TARGETS[kind]()), PARTS[out_of](np.zeros(SHAPE, np.int32))).wait(PATIENCE_S)
    target = TARGETS[kind]()
    source = np.arange(48, dtype=np.int32).reshape(SHAPE)
    part = PARTS[out_of](source)
    expected = part.tolist()
    writer = engine.push(latch.hold, device=0, writes=[target])
    op = cs.copy(PARTS[onto](target), part)
    assert not writer.done()
    source[...] = -1
    latch.release()
    op.wait(PATIENCE_S)
    assert contents(PARTS[onto](target)) == expected


def test_copies_in_a_loop_each_have_the_contents_of_their_turn(engine, latch):
    x, batch = cs.zeros((5, 4), np.int32), np.zeros(4, np.int32)
    engine.push(latch.hold, device=0, writes=[x])
    for turn in range(5):
        batch[:] = turn
        cs.copy(x[turn], batch, count=4) if turn % 2 else cs.copy(x[turn], batch)
    batch[:] = -1
    latch.release()
    assert x.numpy().tolist() == [[turn] * 4 for turn in range(5)]


def test_a_large_source_is_set_aside_in_pageable_memory(engine, latch, monkeypatch):
    monkeypatch.setattr(copies, "MOST_PINNED_BYTES", 8)
    x, source = cs.zeros(4), np.ones(4, np.float32)
    engine.push(latch.hold, device=0, writes=[x])
    cs.copy(x, source)
    source[:] = 5
    latch.release()
    assert x.numpy().tolist() == [1] * 4


@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_source_that_an_op_writes_is_read_after_that_op(engine, latch, is_awaited):
    x, source = cs.zeros(4), np.ones(4, np.float32)
    with HostLatch() as gate:
        op = engine.push(lambda: (gate.wait(), source.fill(7)), writes=[source])
        if is_awaited:
            gate.release()
            op.wait(PATIENCE_S)
            engine.push(latch.hold, device=0, writes=[x])
        cs.copy(x, source)
        if is_awaited:
            source[:] = 5
        gate.release()
    latch.release()
    assert x.numpy().tolist() == [7] * 4


def test_a_source_that_ops_read_may_change_once_they_are_over(engine, latch):
    """The copy itself is no reader: it has the contents already."""
    x, source = cs.zeros(4), np.ones(4, np.float32)
    engine.push(latch.hold, device=0, writes=[x])
    cs.copy(x, source)
    assert engine.push(lambda: source.fill(3), writes=[source]).wait(PATIENCE_S) is None
    latch.release()
    assert x.numpy().tolist() == [1] * 4


def test_the_failure_of_the_sources_writer_is_inherited():
    with cs.Engine() as engine:
        x, source = cs.zeros(4), np.ones(4, np.float32)
        spoil = engine.push(lambda: 1 / 0, writes=[source], name="spoil")
        with pytest.raises(cs.OpError, match="spoil"):
            spoil.wait()
        cs.copy(x, source)
        with pytest.raises(cs.OpError, match="spoil"):
            x.numpy()
        engine.clear_errors()


LOSES_ITS_DEVICE = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry wild() { .reg .b64 %rd_to; mov.u64 %rd_to, 8; st.global.u32 [%rd_to], 1; ret; }
"""


@pytest.mark.loses_device
@pytest.mark.parametrize("part", PARTS)
def test_a_copy_to_a_lost_device_fails_as_an_op_and_not_in_its_push(part):
    """Nobody knows when a device is lost: the program is told by whoever waits."""
    with cs.Engine() as engine:
        try:
            x = cs.zeros((3, 4), np.int32)
            launched = cs.Module.from_ptx(LOSES_ITS_DEVICE).kernel("wild")[1, 1]()
            assert launched.exception(PATIENCE_S) is not None
            op = cs.copy(x, PARTS[part](np.ones(SHAPE, np.int32)))
            assert op.exception(PATIENCE_S) is not None
        finally:
            cs.Device(0).reset()
            # The kernel may have written anywhere, so pinned memory of others is poisoned, too.
            engine.clear_errors()


def test_a_launch_reads_the_source_as_of_then():
    x, source = cs.zeros(4), np.ones(4, np.float32)
    with cs.graph() as g:
        cs.copy(x, source)
    exe = g.instantiate()
    for value in (2, 3):
        source[:] = value
        exe.launch()
        assert x.numpy().tolist() == [value] * 4


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fill", "in", "in", "out", "add", "host"]),
        st.integers(0, 1),
        st.integers(0, 1),
        st.sampled_from(list(PARTS)),
    ),
    max_size=12,
)


def outcome(steps, *, is_serial, latch=None):
    """What a program leaves in its arrays: run in order by NumPy, or by the engine.

    The program writes host memory itself ("fill"). It waits before for the ops that use the memory,
    but not for copies from it that found no unfinished writer.
    """
    devices = [np.zeros(SHAPE, np.int32) for _ in range(2)]
    hosts = [np.zeros(SHAPE, np.int32) for _ in range(2)]
    engine, users = cs.engine(), [[], []]
    if not is_serial:
        devices = [cs.array(each) for each in devices]
    if latch is not None:
        engine.push(latch.hold, device=0, writes=devices)
    for value, (kind, one, other, part) in enumerate(steps, 1):
        device, host, cut = devices[one], hosts[other], PARTS[part]
        if kind == "fill":
            while users[other]:
                users[other].pop().wait(PATIENCE_S)
            cut(host)[...] = value
        elif is_serial and kind in ("in", "out"):
            target, source = (device, host) if kind == "in" else (host, device)
            cut(target)[...] = source[:3, :4]
        elif kind == "in":
            op = cs.copy(cut(device), host[:3, :4])
            users[other] += [op] * bool(users[other])
        elif kind == "out":
            users[other].append(cs.copy(cut(host), device[:3, :4]))
        elif kind == "add":
            device += value
        elif is_serial:
            host += value
        else:
            add = functools.partial(np.add, host, value, out=host)
            users[other].append(engine.push(add, reads=[host], writes=[host]))
    if latch is not None:
        latch.release()
    engine.waitall(PATIENCE_S)
    return [contents(each) for each in (*devices, *hosts)]


@given(STEPS)
def test_a_program_that_writes_host_memory_itself_gives_the_serial_result(steps):
    with cs.Engine():
        assert outcome(steps, is_serial=False) == outcome(steps, is_serial=True)


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_program_whose_copies_take_their_source_later_is_found(
    engine, latch, monkeypatch, is_planted
):
    if is_planted:
        monkeypatch.setattr(copies, "_is_of_the_program", lambda of: False)
    steps = [(kind, 0, 0, "rows with gaps") for kind in ("fill", "in", "fill", "add")]
    found = outcome(steps, is_serial=False, latch=latch)
    assert (found == outcome(steps, is_serial=True)) is not is_planted


def test_a_copy_that_takes_its_source_later_is_found(engine, latch, monkeypatch):
    monkeypatch.setattr(copies, "_is_of_the_program", lambda of: False)
    x, source = cs.zeros(4), np.ones(4, np.float32)
    engine.push(latch.hold, device=0, writes=[x])
    cs.copy(x, source)
    source[:] = 5
    latch.release()
    assert x.numpy().tolist() == [5] * 4
