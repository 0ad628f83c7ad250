"""The check reports a race between a block's threads if and only if brute force finds one."""

from __future__ import annotations

import pytest
from helpers.checks.thread_steps import Meet, Touch, races, text_of
from helpers.lowering import bare_launch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cudasync.ptx import parse
from cudasync.softgpu.core.checks.thread_races import ThreadRaces
from cudasync.softgpu.interface.access_recording import Recording
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module

THREADS = (0, 1, 2, 33, 34)
PARTS = (0x3, 0x5, 0x6, 0x7)
# An element that is drawn more often is listed more often.
MEETINGS = ("block", "warp", "warp", "lanes", "lanes")


@st.composite
def touches(draw, deeds):
    size = draw(st.sampled_from((1, 2, 4, 4, 4, 8)))
    what = draw(st.sampled_from(deeds))
    if what == "atomic":
        size = 4
    offset = draw(st.sampled_from(range(0, 8, size)))
    return Touch(draw(st.sampled_from(THREADS)), what, offset, size)


@st.composite
def meetings(draw):
    kind = draw(st.sampled_from(MEETINGS))
    if kind == "block":
        return Meet("block")
    mask = 0xFFFFFFFF if kind == "warp" else draw(st.sampled_from(PARTS))
    return Meet(draw(st.sampled_from((0, 1))), mask)


def kernels(*deeds):
    steps = st.one_of(touches(deeds), touches(deeds), meetings())
    return st.lists(steps, min_size=2, max_size=9)


def found_in(steps):
    kernel = compile_module(parse(text_of(steps)), record=True, races=True).kernels["steps"]
    found = []
    recording = Recording([])
    recording.races = watch = ThreadRaces([], kernel.sites, 64, found.append)
    launch = Launch(
        (1, 1, 1), (64, 1, 1), 0, bare_launch.pack(kernel, []), [], AllocationSnapshot([]),
        recording=recording,
    )  # fmt: skip
    assert kernel.start(launch).run().kind is OutcomeKind.DONE
    assert watch.raised is None
    return found


def sides(race):
    return {race.first.thread, race.second.thread}


# A cell records at most three readers.
def has_room(steps):
    reads = [each for each in steps if isinstance(each, Touch) and each.what == "read"]
    return all(
        len({each.thread for each in reads if each.offset <= byte < each.offset + each.size}) <= 3
        for byte in range(8)
    )


@given(kernels("read", "write"))
@example([Touch(0, "write", 0, 4), Meet(0, 0x3), Touch(1, "read", 0, 1)])
@example([Touch(0, "write", 0, 4), Meet(0, 0x3), Meet(0, 0x6), Touch(2, "write", 3, 1)])
@example([Touch(0, "write", 0, 8), Meet(0, 0x5), Touch(1, "read", 4, 2)])
# The lanes of the other warp meet alone.
@example([Touch(1, "read", 4, 2), Meet(1, 0xFFFFFFFF), Touch(0, "write", 4, 4)])
@example(
    [
        Touch(0, "read", 0, 1),
        Touch(1, "read", 4, 2),
        Meet(1, 0xFFFFFFFF),
        Touch(0, "read", 0, 1),
        Touch(0, "write", 4, 4),
    ]
)
def test_threads_race_if_and_only_if_brute_force_says_so(steps):
    assume(has_room(steps))
    expected = {frozenset({a.thread, b.thread}) for a, b in races(steps)}
    found = found_in(steps)
    assert bool(found) == bool(expected)
    assert all(frozenset(sides(race)) in expected for race in found)


@given(kernels("read", "write", "atomic", "atomic"))
@example([Touch(0, "write", 0, 4), Touch(0, "atomic", 0, 4), Touch(1, "atomic", 0, 4)])
@example([Touch(0, "read", 0, 4), Touch(0, "atomic", 0, 4), Touch(33, "atomic", 0, 4)])
def test_with_atomics_what_is_found_is_a_race(steps):
    expected = {frozenset({a.thread, b.thread}) for a, b in races(steps)}
    assert all(frozenset(sides(race)) in expected for race in found_in(steps))


@pytest.mark.parametrize(
    "steps",
    [
        [Touch(0, "write", 0, 4), Touch(0, "atomic", 0, 4), Touch(1, "atomic", 0, 4)],
        [Touch(0, "read", 0, 4), Touch(0, "atomic", 0, 4), Touch(33, "atomic", 0, 4)],
        [Touch(0, "atomic", 0, 4), Touch(33, "atomic", 0, 4), Touch(34, "read", 0, 1)],
    ],
)
def test_atomics_do_not_hide_what_the_same_thread_does_beside_them(steps):
    assert races(steps)
    assert found_in(steps)


RACY = [Touch(0, "write", 0, 4), Touch(33, "read", 0, 4)]
ORDERED = [
    Touch(0, "write", 0, 4),
    Meet("block"),
    Touch(33, "read", 0, 4),
]
ALONE = [Touch(0, "write", 0, 4), Touch(1, "write", 4, 4)]


def test_the_ways_a_checker_may_fail_are_seen(monkeypatch):
    """Planted: barriers that order nothing, and every segment taken for one that cannot race."""
    assert found_in(RACY)
    assert not found_in(ORDERED)
    assert not found_in(ALONE)
    with monkeypatch.context() as planted:
        planted.setattr(
            "cudasync.softgpu.jit.module.race_free_accesses",
            lambda kernel, *_: tuple(range(len(kernel.body))),
        )
        assert not found_in(RACY)
    with monkeypatch.context() as planted:
        # The text shows that these do not race, too.
        planted.setattr("cudasync.softgpu.jit.module.race_free_accesses", lambda *_: ())
        planted.setattr(
            "cudasync.softgpu.jit.control_flow.branch_lowering.note_barrier", lambda *_, **__: None
        )
        assert found_in(ORDERED)
