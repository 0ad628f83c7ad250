"""Lanes that wait for each other: a finding if and only if some lanes would wait for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudasync.ptx import parse
from cudasync.softgpu.core.checks import meetings
from cudasync.softgpu.core.checks.meetings import Meetings
from cudasync.softgpu.interface.convergence_records import has_members, meeting, name_of

LANES = 4
ALL = (1 << LANES) - 1


@st.composite
def programs(draw):
    """The meetings of each lane: kinds with masks that contain the lane's own bit."""
    masks = st.integers(0, ALL)
    return [
        [
            (kind, mask | 1 << lane)
            for kind, mask in draw(st.lists(st.tuples(st.integers(0, 1), masks), max_size=3))
        ]
        for lane in range(LANES)
    ]


def hangs(program):
    """Brute force: a lane stops at a meeting until all lanes in its mask are at an equal
    meeting."""
    places = [0] * LANES

    def front(lane):
        return program[lane][places[lane]] if places[lane] < len(program[lane]) else None

    while True:
        ready = [
            step
            for step in map(front, range(LANES))
            if step is not None and all(front(n) == step for n in range(LANES) if step[1] >> n & 1)
        ]
        if not ready:
            return any(front(lane) is not None for lane in range(LANES))
        for lane in range(LANES):
            if front(lane) == ready[0]:
                places[lane] += 1


def told(program, order):
    """The findings when lanes run ahead one after the other, in this order."""
    found = []
    warp = Meetings(found.append)
    places = [0] * LANES
    for lane in order:
        if places[lane] < len(program[lane]):
            kind, mask = program[lane][places[lane]]
            warp.meet(1 << lane, {lane: mask}, ALL, kind, 10 * lane + places[lane] + 1)
            places[lane] += 1
    for lane in range(LANES):
        while places[lane] < len(program[lane]):
            kind, mask = program[lane][places[lane]]
            warp.meet(1 << lane, {lane: mask}, ALL, kind, 10 * lane + places[lane] + 1)
            places[lane] += 1
    warp.ended(ALL)
    warp.over()
    assert not warp.is_waiting
    return found


ORDERS = st.lists(st.integers(0, LANES - 1), max_size=12)


@given(programs(), ORDERS)
def test_a_lane_is_missed_exactly_where_some_would_wait_for_ever(program, order):
    assert bool(told(program, order)) == hangs(program)


@given(programs(), ORDERS)
def test_the_order_in_which_lanes_run_ahead_does_not_matter(program, order):
    assert bool(told(program, order)) == bool(told(program, []))


def test_one_who_had_ended_need_not_come():
    found = []
    warp = Meetings(found.append)
    warp.meet(0b0011, dict.fromkeys(range(2), ALL), 0b0011, 0, 1)
    assert not warp.is_waiting
    assert not found


def test_one_who_ends_later_is_missed():
    found = []
    warp = Meetings(found.append)
    warp.meet(0b0011, dict.fromkeys(range(2), ALL), ALL, 0, 1)
    warp.ended(0b1100)
    assert [each.absent for each in found] == [2]
    assert found[0].other_line == 0
    assert not warp.is_waiting


def test_one_who_stands_at_a_barrier_of_the_block_is_missed():
    found = []
    warp = Meetings(found.append)
    warp.stopped(0b1000, 7)
    warp.meet(0b0111, dict.fromkeys(range(3), ALL), ALL, 0, 1)
    assert [(each.absent, each.other, each.other_line) for each in found] == [(3, None, 7)]


def test_a_barrier_that_opens_lets_its_lanes_come_later():
    found = []
    warp = Meetings(found.append)
    warp.stopped(ALL, 7)
    warp.opened()
    warp.meet(0b0011, dict.fromkeys(range(2), ALL), ALL, 0, 1)
    warp.meet(0b1100, dict.fromkeys(range(2, 4), ALL), ALL, 0, 2)
    assert not warp.is_waiting
    assert not found


def test_a_checker_that_takes_any_two_meetings_for_one_is_found_out(monkeypatch):
    monkeypatch.setattr(meetings, "_is_same", lambda one, other: one.members == other.members)
    crossed = [[(0, 3)], [(1, 3)], [], []]
    assert hangs(crossed)
    assert not told(crossed, [])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bar.warp.sync -1;", "bar.warp.sync"),
        ("shfl.sync.down.b32 %r0, %r1, 1, 31, -1;", "shfl.sync.down"),
        ("vote.sync.ballot.b32 %r0, %p0, -1;", "vote.sync.ballot"),
        ("match.any.sync.b32 %r0, %r1, -1;", "match.sync.any"),
    ],
)
def test_a_meeting_has_the_name_of_its_instruction(text, name):
    kernel = f".reg .b32 %r<2>; .reg .pred %p0; {text} ret;"
    source = f".version 7.8\n.target sm_80\n.address_size 64\n.entry k()\n{{\n{kernel}\n}}\n"
    instruction = parse(source).kernels[0].body[0]
    assert has_members(instruction)
    assert name_of(meeting(instruction)) == name
