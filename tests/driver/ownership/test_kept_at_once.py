"""Objects kept for work on a device, while another thread waits for the device or resets it."""

from __future__ import annotations

import weakref

import pytest
from cuda.bindings import driver

from cudasync.driver import Event, Stream


class Operand:
    """An object that work needs."""


class Quicker:
    """A lock. Another thread acts at once after its release."""

    def __init__(self, lock, call):
        self._lock, self._call = lock, call

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()
        self._call()


def test_what_is_kept_behind_a_wait_is_not_let_go_by_it(device, monkeypatch):
    device.use()
    context, kept = device.context, []
    wait = driver.cuCtxSynchronize

    def wait_and_then():
        answer = wait()
        if not kept:
            # Another thread enqueues work at this moment.
            operand = Operand()
            kept.append(weakref.ref(operand))
            context.keep_behind(None, operand)
        return answer

    monkeypatch.setattr(driver, "cuCtxSynchronize", wait_and_then)
    device.synchronize()
    assert kept[0]() is not None
    device.synchronize()
    assert kept[0]() is None


@pytest.mark.parametrize("whole", [True, False], ids=["device", "stream"])
def test_what_was_kept_stays_when_a_wait_is_interrupted(device, monkeypatch, whole):
    stream, context, kept = Stream(device), device.context, []
    for keep in (stream.keep, lambda operand: context.keep_behind(None, operand)):
        operand = Operand()
        kept.append(weakref.ref(operand))
        keep(operand)
        del operand

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(driver, "cuCtxSynchronize", interrupted)
        patch.setattr(driver, "cuStreamSynchronize", interrupted)
        with pytest.raises(KeyboardInterrupt):
            (device if whole else stream).synchronize()
        assert all(each() is not None for each in kept)
    device.synchronize()
    assert all(each() is None for each in kept)


def test_what_another_thread_begins_just_after_a_reset_stays(device, monkeypatch):
    device.use()
    context, begun = device.context, []

    def begin():
        # Only once, because `begin` takes the lock itself.
        monkeypatch.undo()
        stream, operand = Stream(device), Operand()
        event = Event(device)
        context.keep_behind(stream.record(), operand)
        begun.extend((stream, weakref.ref(operand), context.garbage, event.handle))

    monkeypatch.setattr(context, "_lock", Quicker(context._lock, begin))
    device.reset()
    stream, operand, garbage, _ = begun
    assert operand() is not None
    assert stream._in_flight in context.token.in_flight
    # The event has become garbage.
    assert len(garbage) == 1
    device.synchronize()
    assert operand() is None
    assert not garbage


def test_what_finalisers_left_stays_when_a_reset_is_refused(device, monkeypatch):
    device.synchronize()
    context, (refused,) = device.context, [driver.CUresult.CUDA_ERROR_NOT_PERMITTED]
    operand = Operand()
    context.keep_behind(None, operand)
    is_there = weakref.ref(operand)
    del operand
    with monkeypatch.context() as patch:
        patch.setattr(driver, "cuDevicePrimaryCtxReset", lambda _: (refused,))
        with pytest.raises(Exception, match="NOT_PERMITTED"):
            device.reset()
    assert is_there() is not None
    device.synchronize()
    assert is_there() is None
