"""Arrays lent to other libraries: ordered behind the engine's ops, alive until their return."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest
from helpers.arrays.dlpack_tensors import Consumer, TheirTensor
from helpers.arrays.foreign_arrays import TheirStream, is_held_up, pinned, reader

import cudasync as cs
from cudasync.array.allocation import reap
from cudasync.driver.interchange import dlpack_export
from cudasync.testing import HostLatch, Latch


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine
        engine.clear_errors()


@pytest.fixture
def latch(engine):
    with Latch() as held:
        yield held


@pytest.fixture(autouse=True)
def no_loan_is_left():
    yield
    dlpack_export.reclaim(1000)
    assert not dlpack_export._loans


def test_a_consumer_sees_the_memory_as_it_is(engine):
    x = cs.array(np.arange(12, dtype=np.float32).reshape(3, 4))
    for version, name in (
        (None, b"dltensor"),
        ((0, 8), b"dltensor"),
        ((1, 0), b"dltensor_versioned"),
    ):
        view = x[1:, ::2]
        theirs = Consumer(view.__dlpack__(max_version=version))
        tensor = theirs.tensor
        assert theirs.name == name
        assert (theirs.shape, theirs.strides) == ((2, 2), (4, 2))
        assert tensor.data + tensor.byte_offset == view.ptr
        assert (tensor.device.device_type, tensor.device.device_id) == view.__dlpack_device__()
        assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 32, 1)
        if name != b"dltensor":
            assert (theirs.managed.version.major, theirs.managed.flags) == (1, 0)
        theirs.give_back()


def test_the_consumers_stream_waits_for_our_writers_and_the_host_does_not(engine, latch):
    stream, x = cs.Stream(), cs.zeros(4, np.int32)
    held = engine.push(latch.hold, device=cs.Device(0), writes=[x])
    cs.copy(x, pinned([1, 2, 3, 4], np.int32))
    theirs = Consumer(x.__dlpack__(stream=stream.handle))
    assert is_held_up(held.done)
    assert is_held_up(stream.query)
    latch.release()
    assert theirs.numpy(np.int32, stream).tolist() == [1, 2, 3, 4]
    theirs.give_back()


@pytest.mark.parametrize("asked", [None, 1, 2])
def test_the_default_streams_can_be_the_consumers(engine, latch, asked):
    x = cs.zeros(4, np.int32)
    engine.push(latch.hold, device=cs.Device(0), writes=[x])
    x.__dlpack__(stream=asked)
    consumer = cs.Stream.from_handle(asked or 1)
    assert is_held_up(consumer.query)
    latch.release()
    consumer.synchronize()


def test_the_consumer_may_name_a_stream_by_the_object(engine, latch):
    theirs, x = TheirStream(), cs.zeros(4)
    engine.push(latch.hold, device=cs.Device(0), reads=[x])
    x.__dlpack__(stream=theirs)
    assert is_held_up(theirs.stream.query)


@pytest.mark.parametrize("kind", ["writes", "reads"])
@pytest.mark.parametrize("place", [0, "cpu"])
def test_a_consumer_without_a_stream_gets_memory_that_no_op_uses(engine, latch, place, kind):
    """The consumer may read and write, so the export comes after writers and readers."""
    x, seen = cs.zeros(4, device=place), []
    with HostLatch() as gate:
        if place == "cpu":
            op = engine.push(gate.wait, **{kind: [x]})
        else:
            op = engine.push(latch.hold, device=cs.Device(0), **{kind: [x]})
        before = engine.statistics().ops

        def export():
            with cs.use(engine):
                x.__dlpack__(stream=None if place == "cpu" else -1)
            seen.append(op.done())

        consumer = threading.Thread(target=export)
        consumer.start()
        while consumer.is_alive() and engine.statistics().ops == before:
            consumer.join(0.001)
        latch.release()
    consumer.join()
    assert seen == [True]


@pytest.mark.parametrize("wrong", [0, -2])
def test_a_stream_that_dlpack_does_not_know_is_refused(wrong):
    with pytest.raises(ValueError, match=f"stream={wrong}"):
        cs.zeros(4).__dlpack__(stream=wrong)
    with pytest.raises(TypeError):
        cs.zeros(4).__dlpack__(stream="1")


def test_what_is_lent_lives_until_it_is_returned_and_no_longer(engine):
    x, stream = cs.array(np.arange(5)), cs.Stream()
    memory = weakref.ref(x._allocation)
    theirs = Consumer(x.__dlpack__(stream=stream.handle, max_version=(1, 0)))
    del x
    for _ in range(3):
        cs.zeros(5)
    assert memory() is not None
    assert theirs.numpy(np.int64, stream).tolist() == [0, 1, 2, 3, 4]
    theirs.give_back()
    reap()
    assert memory() is None


def test_a_capsule_that_nobody_used_lends_nothing(engine):
    x = cs.zeros(5)
    memory = weakref.ref(x._allocation)
    capsule = x.__dlpack__()
    del x
    reap()
    assert memory() is not None
    del capsule
    reap()
    assert memory() is None


def test_it_may_be_returned_by_any_thread(engine):
    theirs = Consumer(cs.zeros(5).__dlpack__())
    thread = threading.Thread(target=theirs.give_back)
    thread.start()
    thread.join()
    reap()
    assert not dlpack_export._loans


def test_dropping_it_loses_no_exception_that_is_on_its_way():
    """A Python destructor or deleter would lose the exception: it runs while one is set."""
    with pytest.raises(TypeError, match="PyCapsule"):
        int(cs.zeros(4).__dlpack__())


def test_many_exports_leave_nothing_behind(engine):
    x = cs.zeros(5)
    for turn in range(200):
        capsule = x.__dlpack__(stream=-1)
        if turn % 2:
            Consumer(capsule).give_back()
        del capsule
        reap()
    assert len(dlpack_export._loans) <= 1
    assert len(dlpack_export.LENT) <= 1


def test_long_loans_do_not_hide_short_ones(engine):
    x, long = cs.zeros(5), []
    for _ in range(50):
        long.append(Consumer(x.__dlpack__(stream=-1)))
        Consumer(x.__dlpack__(stream=-1)).give_back()
        reap()
    assert len(dlpack_export._loans) < 70
    for theirs in long:
        theirs.give_back()


def test_what_the_consumer_wrote_is_seen_after_a_take_over(engine, latch):
    stream, x = cs.Stream(), cs.zeros(4, np.int32)
    theirs = Consumer(x.__dlpack__(stream=stream.handle))
    latch.hold(stream)
    cs.memcpy_async(x, pinned([5, 6, 7, 8], np.int32), stream=stream)
    cs.take_over(x, after=stream)
    theirs.give_back()
    assert is_held_up(reader(engine, x).done)
    latch.release()
    assert x.numpy().tolist() == [5, 6, 7, 8]


def test_numpy_gets_a_copy_on_the_host(engine):
    x = cs.array(np.arange(6).reshape(2, 3))
    host = np.from_dlpack(_OnHost(x[:, 1:]))
    assert host.tolist() == [[1, 2], [4, 5]]
    with pytest.raises(BufferError, match="needs a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(ValueError, match="takes no stream"):
        x.__dlpack__(dl_device=(1, 0), stream=1)


class _OnHost:
    """The request of `numpy.from_dlpack(x, device="cpu")`, for a NumPy that is too old for it."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        return self.array.__dlpack__(dl_device=(1, 0))


def test_a_copy_is_the_consumers_own(engine):
    x = cs.array(np.arange(4, dtype=np.int32))
    stream = cs.Stream()
    theirs = Consumer(x.__dlpack__(copy=True, stream=stream.handle, max_version=(1, 0)))
    assert theirs.tensor.data != x.ptr
    assert theirs.managed.flags == 2
    cs.zeros(4)
    assert theirs.numpy(np.int32, stream).tolist() == [0, 1, 2, 3]
    theirs.give_back()


def test_a_copy_of_a_view_with_gaps_has_none(engine):
    x, stream = cs.array(np.arange(4, dtype=np.int32)), cs.Stream()
    theirs = Consumer(x[::2].__dlpack__(copy=True, stream=stream.handle))
    assert theirs.numpy(np.int32, stream).tolist() == [0, 2]
    theirs.give_back()


def test_read_only_memory_is_lent_as_such(engine):
    frozen = cs.from_dlpack(TheirTensor(np.ones(4), flags=1))
    theirs = Consumer(frozen.__dlpack__(max_version=(1, 0)))
    assert theirs.managed.flags == 1
    theirs.give_back()
    mine = Consumer(frozen.__dlpack__(copy=True))
    assert mine.tensor.data != frozen.ptr
    mine.give_back()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cs.empty(4, "M8[s]"), "no type for elements of datetime64"),
        (lambda: cs.empty(4, "S3"), "no type"),
        (lambda: cs.empty(4, [("x", "i4"), ("y", "f4")]), "no type"),
        (lambda: cs.empty(4, ">i4"), "byte order"),
        (lambda: cs.empty(4, np.longdouble), "no type"),
    ],
)
def test_what_dlpack_has_no_name_for_is_refused(make, words):
    with pytest.raises(BufferError, match=words):
        make().__dlpack__()


def test_another_device_is_refused():
    with pytest.raises(BufferError, match=r"not \(2, 1\)"):
        cs.zeros(4).__dlpack__(dl_device=(2, 1))
    assert cs.zeros(4).__dlpack__(dl_device=(2, 0)) is not None


def test_poison_is_not_lent(engine):
    x = cs.zeros(4)
    engine.push(lambda: 1 / 0, writes=[x], name="spoil")
    with pytest.raises(cs.OpError, match="spoil"):
        x.__dlpack__()


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("mode", ["async", "serial"])
def test_an_op_may_lend_what_it_was_given(mode, on_device):
    with cs.Engine(mode) as engine:
        x = cs.zeros(4)

        def lend(*_):
            return x.__dlpack__(stream=1)

        op = engine.push(lend, reads=[x], writes=[x], device=cs.Device(0) if on_device else None)
        Consumer(op.result()).give_back()
        del op


def test_an_array_without_elements_can_be_lent():
    theirs = Consumer(cs.empty((0, 3)).__dlpack__())
    assert theirs.shape == (0, 3)
    assert theirs.tensor.data is None
    theirs.give_back()
