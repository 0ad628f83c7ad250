"""Events: records, waits, and elapsed time."""

from __future__ import annotations

import threading

import pytest

from cudasync.driver import DeviceBuffer, Event, Stream, memset_async
from cudasync.errors import ClosedError, CudaError


def test_an_event_never_recorded_is_reached(device):
    event = Event(device)
    assert event.query()
    event.synchronize()


def test_an_event_is_reached_when_the_work_before_it_is_done(stream, latch):
    latch.hold(stream)
    event = stream.record()
    assert not event.query()
    latch.release()
    event.synchronize()
    assert event.query()


def test_an_event_is_reached_without_the_work_behind_it(stream, latch):
    event = stream.record()
    latch.hold(stream)
    event.synchronize()
    assert event.query()
    assert not stream.query()


def test_record_gives_the_event_back(device, stream):
    event = Event(device)
    assert stream.record(event) is event
    assert event.record(stream) is event


def test_a_reused_event_is_recorded_on_a_thread_that_has_entered_no_context(stream, latch):
    event, threads = Event(stream.device), []

    def record():
        stream.record_reused(event)
        threads.append(threading.get_ident())

    latch.hold(stream)
    thread = threading.Thread(target=record)
    thread.start()
    thread.join(60)
    assert threads == [thread.ident]
    assert not event.query()
    latch.release()
    event.synchronize()


def test_a_reused_event_that_is_closed_or_whose_stream_is_closed_is_refused(device, stream):
    closed = Event(device)
    closed.close()
    with pytest.raises(ClosedError, match="event is closed"):
        stream.record_reused(closed)
    short = Stream(device)
    short.close()
    with pytest.raises(ClosedError, match="stream is closed"):
        short.record_reused(Event(device))


def test_time_passes_between_events(device, stream):
    buffer = DeviceBuffer(1 << 20, device)
    start, end = Event(device, timing=True), Event(device, timing=True)
    stream.record(start)
    for value in range(20):
        memset_async(buffer, value, stream=stream)
    stream.record(end)
    end.synchronize()
    assert end.elapsed_ms(start) > 0
    assert start.elapsed_ms(end) < 0


def test_elapsed_time_of_an_event_without_timing_is_a_value_error(device, stream):
    timed, untimed = Event(device, timing=True), Event(device)
    timed.record(stream)
    untimed.record(stream)
    with pytest.raises(ValueError, match="start event was made without timing"):
        timed.elapsed_ms(untimed)
    with pytest.raises(ValueError, match="end event was made without timing"):
        untimed.elapsed_ms(timed)


def test_elapsed_time_of_an_event_never_recorded_is_a_value_error(device, stream):
    recorded, other = Event(device, timing=True).record(stream), Event(device, timing=True)
    with pytest.raises(ValueError, match="end event was never recorded"):
        other.elapsed_ms(recorded)


def test_elapsed_time_of_unfinished_work_is_not_ready(device, stream, latch):
    start, end = Event(device, timing=True), Event(device, timing=True)
    stream.record(start)
    latch.hold(stream)
    stream.record(end)
    with pytest.raises(CudaError, match="synchronize first") as caught:
        end.elapsed_ms(start)
    assert caught.value.code == 600


def test_closing_twice_is_harmless_and_use_after_it_is_an_error(device, stream):
    event = Event(device)
    event.close()
    event.close()
    for use in (
        event.query,
        event.synchronize,
        event.record,
        lambda: event.handle,
        lambda: stream.wait(event),
        lambda: stream.record(event),
    ):
        with pytest.raises(ClosedError, match="event is closed"):
            use()


def test_a_wait_outlives_the_event(device, stream, latch):
    other = Stream(device)
    latch.hold(other)
    event = other.record()
    stream.wait(event)
    event.close()
    assert not stream.query()
    latch.release()
    stream.synchronize()
