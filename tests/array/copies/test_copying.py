"""Copies between any two memories: checked before anything is enqueued, ordered like every op."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest

import cudasync as cs
from cudasync.array.copies.staging import Staging
from cudasync.engine.log import node as nodes
from cudasync.testing import HostLatch, Latch


def test_a_copy_goes_between_any_two_memories():
    host, pinned = np.arange(8, dtype=np.float32), cs.pinned_empty((8,), np.float32)
    a, b = cs.empty(8), cs.empty(8)
    cs.copy(a, host)
    cs.copy(b, a)
    cs.copy(pinned, b)
    back = np.zeros(8, np.float32)
    op = cs.copy(back, pinned)
    op.wait()
    assert back.tolist() == host.tolist()


def test_a_copy_in_waits_for_the_host_op_that_fills_its_source():
    with cs.Engine() as engine, HostLatch() as latch:
        pinned = cs.pinned_empty((4,), np.int32)
        pinned[:] = 0

        def fill() -> None:
            latch.wait()
            pinned[:] = 7

        engine.push(fill, writes=[pinned])
        device = cs.zeros(4, np.int32)
        op = cs.copy(device, pinned)
        assert not op.done()
        latch.release()
        assert device.numpy().tolist() == [7] * 4


def test_a_host_op_waits_for_the_copy_out_that_fills_its_source():
    with cs.Engine() as engine:
        device, pinned = cs.array([3, 4]), cs.pinned_empty((2,), np.int64)
        cs.copy(pinned, device)
        assert engine.push(pinned.tolist, reads=[pinned]).result() == [3, 4]


def test_buffers_and_foreign_arrays_take_part():
    class Foreign:
        def __init__(self, array: cs.Array) -> None:
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    buffer = cs.DeviceBuffer(16, cs.Device(0))
    cs.copy(buffer, np.arange(4, dtype=np.int32))
    target = cs.zeros(4, np.int32)
    cs.copy(Foreign(target), buffer).wait()
    assert target.numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("target", "source", "error", "words"),
    [
        (lambda: cs.empty(4), lambda: cs.empty(5), ValueError, "shape"),
        (lambda: cs.empty(4), lambda: cs.empty(4, np.int32), TypeError, "cast first"),
        (lambda: cs.empty(4), lambda: [1, 2], TypeError, "source of a copy"),
        (lambda: cs.empty(8)[::2], lambda: cs.empty(5), ValueError, "shape"),
        (lambda: cs.DeviceBuffer(8), lambda: cs.empty(4), ValueError, "16 bytes to 8 bytes"),
        (lambda: np.broadcast_to(np.float32(0), 4), lambda: cs.empty(4), ValueError, "read-only"),
    ],
)
def test_a_copy_that_can_not_be_is_refused(target, source, error, words):
    with pytest.raises(error, match=words):
        cs.copy(target(), source())


def test_a_closed_buffer_is_refused():
    buffer = cs.DeviceBuffer(16, cs.Device(0))
    buffer.close()
    with pytest.raises(cs.ClosedError):
        cs.copy(buffer, cs.empty(4))


def test_a_callback_may_make_an_array_when_making_one_finds_out_that_its_op_is_done():
    device = cs.Device(0)
    staging, made = Staging(device), []
    with Latch(device) as latch, cs.Engine() as engine:
        op = engine.push(latch.hold, device=device)
        # `add_done_callback` would let a watcher be faster.
        nodes.of(op).callbacks.append(lambda: made.append(staging.fill(np.zeros(8))))
        _, lend_until = staging.fill(np.ones(8))
        lend_until(op)
        latch.release()
        device.synchronize()
        staging.fill(np.zeros(8))
    assert len(made) == 1


def address_of(staged):
    return staged.ctypes.data


def test_a_staged_copy_is_taken_back_when_its_op_has_finished_and_not_before():
    device = cs.Device(0)
    staging = Staging(device)
    with Latch(device) as latch, cs.Engine() as engine:
        op = engine.push(latch.hold, device=device)
        first, lend_until = staging.fill(np.zeros(8))
        lend_until(op)
        second, lend_too = staging.fill(np.ones(8))
        lend_too(engine.push(lambda: None))
        assert address_of(second) != address_of(first)
        latch.release()
        engine.waitall()
        found = {address_of(staging.fill(np.zeros(8))[0]) for _ in range(2)}
    assert found == {address_of(first), address_of(second)}


def test_what_was_staged_before_a_reset_is_not_used_again():
    device = cs.Device(0)
    staging = Staging(device)
    # Arrays of other tests, for which no test waited, and their failures by a reset.
    with suppress(cs.OpError):
        cs.waitall()
    cs.engine().clear_errors()
    with cs.Engine() as engine:
        done = engine.push(lambda: None)
        done.wait()
        before, lend_until = staging.fill(np.zeros(8))
        device.reset()
        # A copy in the new life comes before the first buffer is returned.
        _, lend_too = staging.fill(np.ones(8))
        lend_until(done)
        lend_too(done)
        found = [staging.fill(np.ones(8))[0] for _ in range(3)]
    assert all(each.base is not before.base for each in found)


def test_who_finds_the_first_taken_leaves_the_second_to_the_op_that_reads_it():
    """Here the end of the first op stages memory, as another thread might do meanwhile."""
    device = cs.Device(0)
    staging, inner = Staging(device), []
    gate = threading.Event()
    with Latch(device) as latch, cs.Engine() as engine:
        first = engine.push(latch.hold, device=device)
        nodes.of(first).callbacks.append(lambda: inner.append(staging.fill(np.zeros(8))[0]))
        taken, lend_until = staging.fill(np.ones(8))
        lend_until(first)
        read, lend_too = staging.fill(np.ones(8))
        # The gate has a time limit, in case a later line fails.
        lend_too(second := engine.push(lambda: gate.wait(5)))
        latch.release()
        device.synchronize()
        found = {address_of(staging.fill(np.zeros(8))[0]) for _ in range(2)}
        assert [address_of(each) for each in inner] == [address_of(taken)]
        assert address_of(read) not in found
        gate.set()
        second.wait()
        assert address_of(staging.fill(np.zeros(8))[0]) == address_of(read)
