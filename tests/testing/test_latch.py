"""The latches: work behind a closed latch does not run, and runs once it is released."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from cudasync.driver import Device, Stream, pinned_empty
from cudasync.testing import HostLatch, Latch
from cudasync.testing.latch import hold_by_kernel


@pytest.fixture
def device():
    return Device(0)


def test_a_held_stream_does_not_get_past_the_latch(device):
    stream = Stream(device)
    with Latch(device) as latch:
        before = stream.record()
        latch.hold(stream)
        after = stream.record()
        before.synchronize()
        assert not after.query()
    after.synchronize()


def test_one_release_lets_every_stream_go(device):
    streams = [Stream(device) for _ in range(3)]
    with Latch(device) as latch:
        for stream in streams:
            latch.hold(stream)
        assert not any(stream.query() for stream in streams)
        latch.release()
        for stream in streams:
            stream.synchronize()


def test_a_latch_can_hold_again(device):
    first, second = Stream(device), Stream(device)
    with Latch(device) as latch:
        latch.hold(first)
        latch.release()
        latch.hold(second)
        first.synchronize()
        assert not second.query()
    second.synchronize()


def test_a_latch_lets_go_when_its_block_fails(device):
    stream = Stream(device)

    def fail():
        with Latch(device) as latch:
            latch.hold(stream)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    stream.synchronize()


def test_the_current_stream_is_held_where_none_is_named(device):
    stream = Stream(device)
    with stream, Latch(device) as latch:
        latch.hold()
        assert not stream.query()
    stream.synchronize()


def test_a_latch_holds_more_often_than_it_has_words(device):
    stream = Stream(device)
    with Latch(device) as latch:
        for _ in range(1030):
            latch.release()
        latch.hold(stream)
        assert not stream.query()
    stream.synchronize()


def test_a_stream_is_held_by_a_kernel_where_it_can_not_wait_for_memory(device):
    stream, word = Stream(device), pinned_empty(1, np.uint32)
    word[:] = 0
    hold_by_kernel(stream, word)
    held = stream.record()
    assert not held.query()
    word[:] = 1
    stream.synchronize()
    assert held.query()


def test_a_host_latch_holds_threads_until_released():
    passed = []
    with HostLatch() as latch:

        def wait():
            latch.wait()
            passed.append(True)

        thread = threading.Thread(target=wait)
        thread.start()
        assert not latch.is_released
        assert not passed
    thread.join(timeout=30)
    assert passed == [True]


def test_a_host_latch_that_nobody_releases_gives_up():
    with pytest.raises(TimeoutError, match="no thread released"):
        HostLatch(deadline_s=0.01).wait()
