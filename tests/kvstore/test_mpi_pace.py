"""How long a wait for a message polls, by the waits before it."""

from __future__ import annotations

import pytest

from cudasync.kvstore.servers import mpi_posts
from cudasync.kvstore.servers.mpi_posts import Pace

LONG_S, SHORT_S = mpi_posts._SPIN_S, mpi_posts._SHORT_SPIN_S


def test_it_is_long_until_a_wait_was_long():
    pace = Pace()
    pace.note(LONG_S, 0)
    assert pace.next_spin_s(0) == LONG_S
    pace.note(1.0, 0)
    assert pace.next_spin_s(0) == SHORT_S


def test_some_waits_poll_long_so_that_two_sides_find_each_other_awake():
    """On a machine that was busy once: a side that sleeps makes the other side's waits long."""
    pace = Pace()
    found = []
    for _ in range(4 * mpi_posts._TRIES):
        pace.note(1.0, 0)
        found.append(pace.next_spin_s(0))
    assert found.count(LONG_S) == 4
    assert found.count(SHORT_S) == len(found) - 4
    pace.note(LONG_S, 0)
    assert {pace.next_spin_s(0) for _ in range(mpi_posts._TRIES)} == {LONG_S}


@pytest.mark.parametrize("size", [1 << 20, 1 << 40])
def test_more_bytes_may_take_longer_up_to_a_most(size):
    pace = Pace()
    assert LONG_S < pace.next_spin_s(size) < 0.002
    pace.note(LONG_S + 0.0005, size)
    assert pace.next_spin_s(0) == LONG_S
    pace.note(LONG_S + 0.0005, 0)
    assert pace.next_spin_s(0) == SHORT_S
