"""A device reset beside threads that use the device ends older objects, and nothing else."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.concurrency.thread_crew import PATIENCE_S, Crew

from cudasync.driver import Event, Stream, pinned_empty
from cudasync.driver.ownership.handles import Owned
from cudasync.errors import ClosedError, CudasyncError
from cudasync.testing import Latch


class CalledBehind:
    """A lock. After its release another thread acts, before the owner goes on."""

    def __init__(self, lock, act):
        self._lock = lock
        self._acts = [act]

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *error):
        self._lock.release()
        # The other thread also takes this lock, on its way into the context.
        act = self._acts.pop() if self._acts else None
        if act is not None:
            with Crew() as crew:
                crew.start(act)


@pytest.fixture
def between(device, monkeypatch):
    """`between(act)` resets the device, and calls `act` on another thread once the device is
    usable."""

    def reset(act):
        context = device.context
        monkeypatch.setattr(context, "_lock", CalledBehind(context._lock, act))
        device.reset()
        monkeypatch.undo()

    return reset


def test_work_that_another_thread_began_since_a_reset_keeps_its_memory(device, between):
    """This includes memory kept for the device rather than a stream: the operand of a borrowed
    stream."""
    found = []

    def act():
        stream = Stream(device)
        latch = Latch(device)
        latch.hold(stream)
        borrowed = Stream.from_handle(stream.handle)
        source = np.zeros(8, np.uint8).view(np.ndarray)
        borrowed.keep(source)
        found.extend([stream, latch, weakref.ref(source)])

    between(act)
    stream, latch, source = found
    gc.collect()
    assert source() is not None
    latch.release()
    device.synchronize()
    gc.collect()
    assert source() is None
    stream.close()


def test_a_stream_that_another_thread_made_since_a_reset_is_seen_to_have_work(device, between):
    """Memory is not freed while the stream has work, if the free would wait."""
    streams, held = [], []

    def act():
        streams.append(Stream(device))

    between(act)
    with Latch(device) as latch:
        latch.hold(streams[0])
        pinned = pinned_empty(8, np.uint8)
        del pinned
        gc.collect()
        assert device.context.blocking_garbage
        with Crew() as crew:
            crew.start(lambda: held.append(Event(device)))
        assert device.context.blocking_garbage, "freeing it would have waited for the latch"
        latch.release()
    device.synchronize()
    assert not device.context.blocking_garbage


def test_what_another_thread_forgot_since_a_reset_is_destroyed(device, between):
    between(lambda: Event(device))
    gc.collect()
    assert device.context.garbage
    device.synchronize()
    assert not device.context.garbage


def test_what_was_made_just_before_a_reset_went_with_it(device):
    """Another thread may reset the device between the driver's call and the creation of the
    owner."""
    context = device.context
    raw = context.allocate("cuEventCreate", driver.cuEventCreate, 0)
    with Crew() as crew:
        crew.start(device.reset)
    owned = Owned(context, raw, driver.cuEventDestroy, noun="event", blocking=False)
    assert owned.is_closed
    with pytest.raises(ClosedError, match="reset"):
        owned.ready()
    Event(device)


def test_threads_make_and_use_streams_beside_one_that_resets(device):
    """Each use ends normally, or raises because the reset ended its stream."""
    done = threading.Event()

    def use():
        while not done.is_set():
            try:
                stream = Stream(device)
                stream.wait(stream.record())
                stream.synchronize()
            except CudasyncError:
                continue

    with Crew(patience_s=PATIENCE_S) as crew:
        crew.start(use)
        try:
            for _ in range(40):
                device.reset()
        finally:
            done.set()
    assert Stream(device).query()
