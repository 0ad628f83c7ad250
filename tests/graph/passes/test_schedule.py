"""HEFT's placement of tasks, and their ends."""

from __future__ import annotations

from cudasync.graph.placement import schedule
from cudasync.graph.placement.schedule import Task


def test_a_device_that_is_slower_gets_less():
    tasks = [Task({0: 1.0, 1: 3.0}) for _ in range(8)]
    found = schedule.scheduled(tasks, lambda size: 0.0)
    assert (found.places.count(0), found.places.count(1)) == (6, 2)
    assert found.end_s == 6.0
    assert schedule.at_home(tasks, lambda size: 0.0).end_s == 8.0


def test_a_step_fills_the_first_gap_that_is_long_enough():
    """The long task waits for a copy. The short task has the last rank, and runs before it."""
    long = Task({0: 5.0}, needs=[(1, 3)])
    short = Task({0: 2.0})
    found = schedule.scheduled([long, short], float)
    assert found.end_s == 8.0


def test_copies_to_one_place_come_one_after_the_other():
    tasks = [Task({0: 1.0}, leaves=[(1, 4)]), Task({2: 1.0}, leaves=[(1, 4)])]
    assert schedule.scheduled(tasks, float).end_s == 9.0
