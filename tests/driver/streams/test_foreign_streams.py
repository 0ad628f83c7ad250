"""Other libraries' streams: accepted wherever a stream is, ordered both ways, never destroyed."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirStream, is_held_up

from cudasync.driver import (
    DeviceBuffer,
    Event,
    Module,
    Stream,
    current_device,
    launch,
    memcpy_async,
    memset_async,
    pinned_empty,
)
from cudasync.errors import CudaError


def test_a_foreign_stream_is_taken_wherever_a_stream_is(device, stream, latch):
    theirs = TheirStream(stream)
    buffer, back = DeviceBuffer(4, device), pinned_empty(4, np.uint8)
    back[:] = 0
    # A driver loads a module only once the device is idle.
    module = Module.from_ptx(
        ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }"
    )
    latch.hold(stream)
    memset_async(buffer, 5, stream=theirs)
    launch(module.kernel("nothing"), grid=1, stream=theirs)
    memcpy_async(back, buffer, stream=theirs)
    event = Event(device).record(theirs)
    mine = Stream(device)
    mine.wait(theirs)
    assert is_held_up(event.query)
    assert is_held_up(mine.query)
    latch.release()
    mine.synchronize()
    assert back.tolist() == [5] * 4


def test_a_foreign_stream_can_be_made_to_wait_for_ours(device, stream, latch):
    mine, theirs = Stream(device), Stream.from_object(TheirStream(stream))
    latch.hold(mine)
    theirs.wait(mine)
    assert is_held_up(stream.query)
    latch.release()
    theirs.synchronize()
    assert mine.query()


def test_a_borrowed_stream_is_never_destroyed_by_the_borrower(device, stream):
    for borrowed in (Stream.from_handle(stream.handle), Stream.from_object(TheirStream(stream))):
        assert not borrowed.is_owned
        assert borrowed.handle == stream.handle
        with borrowed:
            memset_async(DeviceBuffer(4, device), 1)
        borrowed.close()
        assert not borrowed.is_closed
        del borrowed
        gc.collect()
        device.synchronize()
    assert stream.query()


def test_the_lender_lives_as_long_as_what_it_lent(stream):
    theirs = TheirStream(stream)
    gone = weakref.ref(theirs)
    borrowed = Stream.from_object(theirs)
    del theirs
    gc.collect()
    assert gone() is not None
    del borrowed
    gc.collect()
    assert gone() is None


def test_a_stream_of_ours_is_returned_as_it_is(stream):
    assert Stream.from_object(stream) is stream


@pytest.mark.parametrize("handle", [0, 1, 2])
def test_a_default_stream_is_that_of_the_device_asked_for(device, handle):
    assert Stream.from_handle(handle, device).device is device
    assert Stream.from_handle(handle).device is current_device()
    assert Stream.from_handle(handle).query()


class Attribute:
    def __init__(self, told):
        self.__cuda_stream__ = told


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda: Stream.from_object(7), TypeError, "no __cuda_stream__"),
        (
            lambda: Stream.from_object(Attribute((1, 1))),
            ValueError,
            "version 1, and cudasync knows only 0",
        ),
        (lambda: Stream.from_object(Attribute((0, -1))), ValueError, "not a stream handle"),
        (lambda: Stream.from_handle(-5), ValueError, "not a stream handle"),
        (lambda: Stream.from_handle("1"), TypeError, "integer"),
    ],
)
def test_what_is_no_stream_is_refused(device, wrong, error, words):
    with pytest.raises(error, match=words):
        wrong()


def test_a_handle_that_the_driver_does_not_know_is_its_error(device):
    if not device.is_software:
        # A real driver may crash on an unknown handle.
        return
    with pytest.raises(CudaError, match="INVALID_HANDLE"):
        Stream.from_handle(12345)
