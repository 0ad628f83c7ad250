"""Ctrl-C behind a call: it comes once, and every program can be ended."""

from __future__ import annotations

import signal
import threading

import pytest

from cudasync.engine.lifecycle import deferred_interrupt
from cudasync.engine.lifecycle.deferred_interrupt import uninterrupted


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def noting(request):
    """Ctrl-C is noted in this list."""
    came = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    yield came
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_comes_behind_the_call():
    done = []
    with pytest.raises(KeyboardInterrupt):
        uninterrupted(lambda: (interrupt(), done.append(True)))
    assert done == [True]


def test_without_ctrl_c_it_is_the_call():
    assert uninterrupted(lambda: 3) == 3
    with pytest.raises(LookupError):
        uninterrupted({}.popitem)


def test_ctrl_c_and_an_exception_of_the_call_are_both_raised():
    with pytest.raises(KeyboardInterrupt) as caught:
        uninterrupted(lambda: (interrupt(), {}.popitem()))
    assert isinstance(caught.value.__context__, LookupError)


def test_the_second_ctrl_c_ends_the_call():
    done = []
    with pytest.raises(KeyboardInterrupt):
        uninterrupted(lambda: (interrupt(), interrupt(), done.append(True)))
    assert not done


def test_a_call_that_takes_long_is_ended_by_the_first(monkeypatch):
    monkeypatch.setattr(deferred_interrupt, "LONGEST_S", -1.0)
    done = []
    with pytest.raises(KeyboardInterrupt):
        uninterrupted(lambda: (interrupt(), done.append(True)))
    assert not done


def test_a_handler_of_the_program_is_called_once_and_may_return(noting):
    assert uninterrupted(lambda: (interrupt(), len(noting))[1]) == 0
    assert noting == [signal.SIGINT]


def test_a_handler_that_the_call_sets_stays(noting):
    def other(number, frame):
        noting.append("other")

    uninterrupted(lambda: signal.signal(signal.SIGINT, other))
    assert signal.getsignal(signal.SIGINT) is other


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_where_python_handles_no_ctrl_c_nothing_is_replaced(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert uninterrupted(lambda: signal.getsignal(signal.SIGINT)) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_on_another_thread_nothing_is_replaced():
    before = signal.getsignal(signal.SIGINT)
    found = []
    thread = threading.Thread(
        target=uninterrupted, args=[lambda: found.append(signal.getsignal(signal.SIGINT))]
    )
    thread.start()
    thread.join()
    assert found == [before]
