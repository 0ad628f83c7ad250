"""Foreign arrays by __cuda_array_interface__: we wait for their stream, and name ours."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirArray, is_held_up, pinned, reader

import cudasync as cs
from cudasync.array.kernels.bundled_ptx import kernel_file
from cudasync.testing import Latch


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


@pytest.fixture
def latch(engine):
    with Latch() as held:
        yield held


@pytest.fixture
def saxpy():
    return cs.Module.from_file(kernel_file("saxpy")).kernel("saxpy")


class Told:
    """An object with this interface and nothing else."""

    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


def test_a_copy_waits_for_the_stream_that_a_foreign_source_names(latch):
    theirs, mine = TheirArray(np.zeros(4, np.float32)), cs.empty(4)
    latch.hold(theirs.stream)
    theirs.fill([1, 2, 3, 4])
    op = cs.copy(mine, theirs)
    assert is_held_up(op.done)
    latch.release()
    assert mine.numpy().tolist() == [1, 2, 3, 4]


def test_a_copy_to_a_foreign_target_waits_for_its_stream(latch):
    theirs = TheirArray(np.zeros(4, np.float32))
    latch.hold(theirs.stream)
    theirs.fill([9, 9, 9, 9])
    op = cs.copy(theirs, cs.array(np.arange(4, dtype=np.float32)))
    assert is_held_up(op.done)
    latch.release()
    op.wait()
    assert theirs.numpy().tolist() == [0, 1, 2, 3]


def test_a_kernel_waits_for_the_streams_of_its_foreign_arguments(latch, saxpy):
    x, y = TheirArray(np.zeros(8, np.float32)), TheirArray(np.zeros(8, np.float32))
    for each, value in ((x, 1), (y, 10)):
        latch.hold(each.stream)
        each.fill(np.full(8, value))
    op = saxpy[1, 32](np.float32(2), cs.In(x), y, np.uint32(8))
    assert is_held_up(op.done)
    latch.release()
    op.wait()
    assert y.numpy().tolist() == [12] * 8


def test_foreign_arrays_on_one_stream_cost_one_wait(engine, saxpy):
    stream = cs.Stream()
    x, y = (TheirArray(np.ones(8, np.float32), on=stream) for _ in "xy")
    before = engine.statistics().ops
    saxpy[1, 32](np.float32(2), x, y, np.uint32(8)).wait()
    assert engine.statistics().ops - before == 2


def test_no_stream_named_is_no_stream_waited_for(latch, saxpy):
    x, y = (TheirArray(np.ones(8, np.float32), tell_stream=False) for _ in "xy")
    latch.hold(x.stream)
    saxpy[1, 32](np.float32(2), x, y, np.uint32(8)).wait()
    assert is_held_up(x.stream.query)


@pytest.mark.parametrize("name", [1, 2])
def test_the_default_streams_may_be_named(name):
    theirs = TheirArray(np.arange(4), on=cs.Stream.from_handle(name))
    assert theirs.__cuda_array_interface__["stream"] == name
    theirs.fill([4, 5, 6, 7])
    mine = cs.empty(4, np.int64)
    cs.copy(mine, theirs)
    assert mine.numpy().tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("told", "error", "words"),
    [
        ({"stream": 0}, ValueError, "names stream 0"),
        ({"stream": -1}, ValueError, "names stream -1"),
        ({"stream": "1"}, TypeError, "integer"),
        ({"mask": object()}, ValueError, "masked"),
        ({"strides": (16,)}, ValueError, "not contiguous"),
    ],
)
def test_an_interface_that_breaks_the_protocol_is_refused(engine, saxpy, told, error, words):
    theirs = TheirArray(np.zeros(4, np.float32), **told)
    with pytest.raises(error, match=words):
        cs.copy(cs.empty(4), theirs)
    engine.waitall()


def test_a_read_only_array_is_no_target(engine):
    theirs = TheirArray(np.zeros(4, np.float32))
    frozen = Told({**theirs.__cuda_array_interface__, "data": (theirs.buffer.ptr, True)})
    with pytest.raises(ValueError, match="read-only"):
        cs.copy(frozen, cs.empty(4))
    mine = cs.empty(4)
    cs.copy(mine, frozen)
    assert mine.numpy().tolist() == [0] * 4


def test_an_array_without_elements_needs_no_memory():
    empty = Told(
        {"version": 3, "shape": (0,), "typestr": "<f4", "data": (0, False), "stream": None}
    )
    cs.copy(cs.empty(0), empty).wait()
    assert cs.empty(0).__cuda_array_interface__["data"] == (0, False)


def test_our_interface_names_a_stream_behind_our_writers(engine, latch):
    x = cs.zeros(4, np.int32)
    held = engine.push(latch.hold, device=cs.Device(0), writes=[x])
    cs.copy(x, pinned(range(4), np.int32))
    interface = x.__cuda_array_interface__
    stream = cs.Stream.from_handle(interface["stream"])
    assert is_held_up(held.done)
    assert is_held_up(stream.query)
    back = cs.pinned_empty((4,), np.int32)
    cs.memcpy_async(back, Told(interface), stream=stream)
    latch.release()
    stream.synchronize()
    assert back.tolist() == [0, 1, 2, 3]


def test_our_interface_waits_for_host_ops_since_no_stream_can(engine):
    x, host = cs.zeros(4, np.int32), cs.pinned_empty((4,), np.int32)
    ran = []

    def fill():
        host[:] = 3
        ran.append(True)

    engine.push(fill, writes=[host])
    cs.copy(x, host)
    interface = x.__cuda_array_interface__
    assert ran
    assert interface["stream"] > 2


def test_what_is_poisoned_is_not_shown(engine):
    x = cs.zeros(4)
    engine.push(lambda: 1 / 0, writes=[x], name="spoil")
    with pytest.raises(cs.OpError, match="spoil"):
        _ = x.__cuda_array_interface__
    engine.clear_errors()


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("mode", ["async", "serial"])
def test_an_op_may_show_what_it_was_given(mode, on_device):
    """The op is already in order. If it waited for the array's users, it would wait for itself."""
    with cs.Engine(mode) as engine:
        x, seen = cs.array(np.arange(4)), []

        def look(*_):
            seen.append(x.__cuda_array_interface__["stream"])

        engine.push(look, reads=[x], writes=[x], device=cs.Device(0) if on_device else None).wait()
        assert seen == [None]


def test_to_use_an_array_through_the_driver_layer_orders_nothing(engine):
    x, back = cs.array(np.arange(4)), np.zeros(4, np.int64)
    before = engine.statistics().ops

    def fetch(stream):
        cs.memcpy_async(back, x, stream=stream)

    engine.push(fetch, reads=[x], writes=[back], device=cs.Device(0)).wait()
    assert engine.statistics().ops - before == 1
    assert back.tolist() == [0, 1, 2, 3]


def test_a_strided_view_is_shown_with_its_strides_and_refused_as_plain_bytes():
    x = cs.array(np.arange(6))[::2]
    assert x.__cuda_array_interface__["strides"] == (16,)
    with pytest.raises(ValueError, match="not C-contiguous"):
        cs.memcpy_async(np.zeros(3, np.int64), x)


def test_a_push_waits_for_the_stream_that_a_foreign_array_names(engine, latch):
    theirs = TheirArray(np.zeros(4, np.int32))
    latch.hold(theirs.stream)
    assert is_held_up(reader(engine, theirs).done)
