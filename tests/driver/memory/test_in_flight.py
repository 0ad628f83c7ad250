"""A stream's handle is lent to whoever asks about the stream, and nobody destroys it meanwhile."""

from __future__ import annotations

import pytest
from helpers.concurrency.thread_crew import together

from cudasync.driver import Stream
from cudasync.driver.memory.in_flight import InFlight

ROUNDS = 200


class Handle:
    """A handle that knows whether it was used after its end, as a real driver does not."""

    def __init__(self):
        self.ends = 0

    def asked(self, handle):
        assert handle is self
        assert not self.ends, "asked about a stream that is destroyed"
        return True

    def destroyed(self, handle):
        assert handle is self
        self.ends += 1
        return (0,)


def test_a_destroyed_stream_is_not_asked_about():
    handle = Handle()
    lent = InFlight(handle)
    assert lent.ask(handle.asked) is True
    assert lent.destroy(handle.destroyed) == (0,)
    assert lent.ask(handle.asked) is None
    assert handle.ends == 1


def test_a_stream_that_is_asked_about_ends_after_the_answer():
    handle = Handle()
    lent = InFlight(handle)

    def question(raw):
        # Another thread wants to destroy the stream now, and a third asks.
        lent.destroy(handle.destroyed)
        assert lent.ask(handle.asked) is None
        assert not handle.ends
        return True

    assert lent.ask(question) is True
    assert handle.ends == 1


def test_it_also_ends_if_the_question_fails():
    handle = Handle()
    lent = InFlight(handle)

    def question(raw):
        lent.destroy(handle.destroyed)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lent.ask(question)
    assert handle.ends == 1


@pytest.mark.parametrize("askers", [1, 3])
def test_however_threads_meet_a_stream_is_destroyed_once_and_not_asked_about_then(askers):
    handles = [Handle() for _ in range(ROUNDS)]
    lent = [InFlight(handle) for handle in handles]

    def ask():
        for handle, each in zip(handles, lent, strict=True):
            while each.ask(handle.asked):
                pass

    def destroy():
        for handle, each in zip(handles, lent, strict=True):
            each.destroy(handle.destroyed)

    together(destroy, *[ask] * askers)
    assert [handle.ends for handle in handles] == [1] * ROUNDS


def test_a_planted_bug_is_found(monkeypatch):
    """A handle that is not taken while a thread asks is destroyed beneath it."""

    def ask(self, question):
        return question(self._handle[0]) if self._handle else None

    monkeypatch.setattr(InFlight, "ask", ask)
    with pytest.raises(AssertionError):
        test_a_stream_that_is_asked_about_ends_after_the_answer()


def test_streams_are_closed_while_other_threads_make_streams(device):
    """Who makes a stream asks about the others, if a finaliser left one to destroy."""

    def come_and_go():
        for _ in range(30):
            Stream(device).close()
            Stream(device)

    together(*[come_and_go] * 3)
