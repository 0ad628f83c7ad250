"""Seeds: each seed gives a program's streams another order, and the same seed the same order."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync.testing import explore, run_seeds

pytestmark = pytest.mark.lazy


def copied(waits):
    """The result of a copy that is ordered behind a memset by the host, or not at all."""
    first, second = cs.Stream(), cs.Stream()
    buffer, back = cs.DeviceBuffer(64), np.zeros(64, np.uint8)
    cs.memset_async(buffer, 1, stream=first)
    if waits:
        second.wait(first)
    cs.memcpy_async(back, buffer, stream=second)
    second.synchronize()
    return list(back)


def program(waits):
    assert copied(waits) == [1] * 64


def test_a_right_program_is_run_under_each_seed():
    assert run_seeds(lambda: program(waits=True), range(5)) == 5


def test_some_seed_shows_that_a_wait_is_missing_and_shows_it_again():
    with pytest.raises(AssertionError) as raised:
        run_seeds(lambda: program(waits=False), range(20))
    (note,) = raised.value.__notes__
    assert "run_seeds(program, [" in note
    seed = int(note.rpartition("[")[2].partition("]")[0])
    for _ in range(2):
        with pytest.raises(AssertionError):
            run_seeds(lambda: program(waits=False), [seed])


def test_all_seeds_are_run_and_all_failures_told_if_asked_for():
    seen = []

    def counted():
        seen.append(copied(waits=False) == [1] * 64)
        assert seen[-1]

    with pytest.raises(ExceptionGroup, match=f"of {20} runs") as raised:
        run_seeds(counted, range(20), keep_going=True)
    assert len(seen) == 20
    assert len(raised.value.exceptions) == seen.count(False)
    assert 0 < seen.count(False) < 20
    assert run_seeds(lambda: program(waits=True), range(3), keep_going=True) == 3


def test_afterwards_the_order_is_the_usual_one():
    before = copied(waits=False)
    run_seeds(lambda: copied(waits=False), range(20))
    assert [copied(waits=False) for _ in range(3)] == [before] * 3


def test_without_a_seed_nothing_passes():
    with pytest.raises(ValueError, match="at least one"):
        run_seeds(lambda: None, [])


def test_a_seed_inside_of_an_exploration_chooses_nothing():
    runs = []

    def inner():
        runs.append(run_seeds(lambda: None, range(3)))

    explore(inner)
    assert set(runs) == {1}


def test_an_exploration_tells_all_orders_that_fail_if_asked_to():
    seen = []

    def three():
        back = copied(waits=False)
        seen.append(back)
        assert back == [1] * 64

    with pytest.raises(ExceptionGroup, match="1 of 2 orders") as raised:
        explore(three, keep_going=True)
    assert len(seen) == 2
    (error,) = raised.value.exceptions
    order = error.__notes__[0].rpartition('order="')[2].rpartition('"')[0]
    with pytest.raises(AssertionError):
        explore(three, order=order)
    assert explore(lambda: program(waits=True), keep_going=True).is_complete
