"""Random programs with pointers in integers, structs and tables give the serial answer."""

from __future__ import annotations

from functools import cache

import pytest
from helpers.arrays.pointer_reach import expected, play, programs
from hypothesis import Phase, example, given, note, settings

import cudasync as cs
from cudasync.array.kernels import indirect_memory, kernel
from cudasync.driver.memory.allocations import Allocations
from cudasync.engine.hazards.interval_map import Region
from cudasync.testing import explore


@given(programs())
@example([("table", 0, 1), ("array", 0, 2)])
@example([("array", 0, 2), ("table", 0, 1)])
@example([("point", 0, 3), ("counter", 5), ("table", 0, 1), ("counter", 7)])
@example([("copy in", 1, 9), ("struct", 0, 1, 1), ("copy in", 1, 4)])
@example([("point by integer", 1, 2), ("table", 1, 3), ("anew", 2, 5)])
@example([("record", 3), ("table", 0, 1), ("launch", 0), ("table", 0, 2)])
def test_any_program_gives_the_serial_result(program):
    note(program)
    with cs.Engine():
        assert play(program) == expected(program)


@given(programs(6))
def test_the_serial_engine_gives_it_too(program):
    with cs.Engine("serial"):
        assert play(program) == expected(program)


@cache
def sample():
    """The same programs every time."""
    found = []

    @settings(max_examples=60, derandomize=True, database=None, phases=[Phase.generate])
    @given(programs())
    def collect(program):
        found.append(program)

    collect()
    return found


def _nothing_is_there(self, address):
    return []


PLANTED = {
    "values are not looked at": (kernel, "reach_of", lambda *_: None),
    "no address is found": (indirect_memory, "regions_at", lambda *_: ()),
    "pointers from memory lead nowhere": (indirect_memory, "everything", lambda _: (Region(0, 1),)),
}


@pytest.fixture
def reset_afterwards():
    """Out of order, a kernel may follow a pointer to freed memory, which loses the device."""
    yield
    cs.Device(0).reset()


@pytest.mark.loses_device
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_shows(monkeypatch, reset_afterwards, bug):
    monkeypatch.setattr(*PLANTED[bug])

    def is_wrong(program):
        try:
            with cs.Engine():
                return play(program) != expected(program)
        except cs.CudasyncError:
            return True

    assert any(is_wrong(program) for program in sample())


IN_EVERY_ORDER = [
    [("point", 0, 3), ("counter", 5), ("table", 0, 1), ("counter", 7)],
    [("table", 0, 1), ("array", 0, 2), ("table", 1, 3), ("array", 1, 4), ("table", 0, 5)],
    [("integer", 0, 1), ("array", 0, 2), ("struct", 1, 3, 0), ("integer", 0, 4)],
    [("point by integer", 0, 1), ("array", 1, 1), ("table", 0, 2), ("struct", 1, 3, 2)],
]


def in_every_order(program):
    def run():
        with cs.Engine():
            assert play(program) == expected(program)

    return explore(run, most=30)


@pytest.mark.parametrize("program", IN_EVERY_ORDER)
def test_the_device_has_no_other_order(program):
    assert in_every_order(program).orders == 1


def test_another_order_shows_where_variables_are_not_part_of_everything(
    monkeypatch, reset_afterwards
):
    monkeypatch.setattr(indirect_memory, "_variables_on", lambda _: [])
    with pytest.raises(AssertionError):
        in_every_order(IN_EVERY_ORDER[0])


def test_without_the_map_of_allocations_it_is_slower_and_right(monkeypatch):
    """Without the map, any number may be an address."""
    monkeypatch.setattr(Allocations, "at", _nothing_is_there)
    for program in sample()[:20]:
        with cs.Engine():
            assert play(program) == expected(program)
