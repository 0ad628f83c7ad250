"""Ctrl-C at any point of any call: everything pushed and returned finishes, and the engine goes on.

The points are those of `helpers/interrupter.py`, the calls those of `helpers/interrupted_calls.py`.
A failure prints the line that replays it: `python -m helpers.interrupting LINE`, in `tests/`.
"""

from __future__ import annotations

import sys

import pytest
from helpers.interrupter import Interrupter
from helpers.process import start


def assert_whole_after(*options: str, deadline_s: float) -> None:
    command = [sys.executable, "-m", "helpers.interrupting", *options]
    assert start(command, deadline_s) == (0, "")


def test_the_engine_is_whole_after_an_interrupt_at_points_taken_at_random():
    assert_whole_after("all", "--sample", "5", deadline_s=60)


def test_the_engine_is_whole_after_a_signal_at_random_times():
    assert_whole_after("all", "--timer", "15", deadline_s=60)


@pytest.mark.slow
def test_the_engine_is_whole_after_an_interrupt_at_each_point():
    assert_whole_after("all", deadline_s=600)


@pytest.mark.slow
def test_the_engine_is_whole_after_thousands_of_signals():
    assert_whole_after("all", "--timer", "1000", deadline_s=600)


@pytest.mark.usefixtures("tracing_ends")
def test_what_traces_is_kept_for_as_long_as_the_interrupter():
    """CPython 3.11 may call it once more when an interrupt has already ended the tracing."""
    with Interrupter(0) as interrupter:
        tracing = sys.gettrace()
    assert any(each is tracing for each in vars(interrupter).values())
