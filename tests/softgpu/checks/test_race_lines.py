"""Races between whole warps, whose lanes the check compares at once, against brute force.

Each step is an access of all lanes of a warp, with words that are equally far apart, or a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from helpers.checks.thread_steps import THREADS, Meet, Touch, races
from helpers.lowering import bare_launch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cudasync.ptx import parse
from cudasync.softgpu.core.checks.thread_races import ThreadRaces
from cudasync.softgpu.interface import race_records
from cudasync.softgpu.interface.access_recording import Recording
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.checks import race_accesses, race_calls

ROOM, LANES = 1024, 32


@dataclass(frozen=True)
class Row:
    """The lanes of a warp read or write words, `apart` bytes from lane to lane."""

    warp: int
    what: str
    start: int
    apart: int

    def touches(self):
        for lane in range(LANES):
            yield Touch(LANES * self.warp + lane, self.what, self.start + lane * self.apart, 4)

    def lines(self, number):
        place = f"[%at+{self.start}]"
        access = f"ld.shared.u32 %value, {place}"
        if self.what == "write":
            # Lanes write different values, which are none of an earlier step.
            access = f"st.shared.u32 {place}, %value"
        return [
            f"    mad.lo.s32 %at, %lane, {self.apart}, %base;",
            f"    mad.lo.s32 %value, %tid, 16, {number + 1};",
            f"    setp.ne.u32 %is_other, %warp, {self.warp};",
            f"    @%is_other bra behind_{number};",
            f"    {access};",
            f"behind_{number}:",
        ]


def text_of(steps):
    lines = f"""\
.version 7.0
.target sm_75
.address_size 64
.visible .entry steps() {{
    .shared .align 8 .b8 bytes[{ROOM}];
    .reg .b32 %tid, %value, %warp, %lane, %at, %base;
    .reg .pred %is_other;
    mov.u32 %tid, %tid.x;
    shr.u32 %warp, %tid, 5;
    and.b32 %lane, %tid, 31;
    mov.u32 %base, bytes;""".splitlines()
    for number, step in enumerate(steps):
        if isinstance(step, Row):
            lines += step.lines(number)
        elif step.warp == "block":
            lines.append("    bar.sync 0;")
        else:
            lines += [
                f"    setp.ne.u32 %is_other, %warp, {step.warp};",
                f"    @%is_other bra behind_{number};",
                "    bar.warp.sync -1;",
                f"behind_{number}:",
            ]
    return "\n".join([*lines, "    ret;", "}", ""])


def flat(steps):
    for step in steps:
        yield from step.touches() if isinstance(step, Row) else [step]


def expected(steps):
    return {frozenset({one.thread, other.thread}) for one, other in races(list(flat(steps)))}


def found_in(steps):
    kernel = compile_module(parse(text_of(steps)), record=True, races=True).kernels["steps"]
    found = []
    recording = Recording([])
    recording.races = watch = ThreadRaces([], kernel.sites, THREADS, found.append)
    launch = Launch(
        (1, 1, 1), (THREADS, 1, 1), 0, bare_launch.pack(kernel, []), [], AllocationSnapshot([]),
        recording=recording,
    )  # fmt: skip
    assert kernel.start(launch).run().kind is OutcomeKind.DONE
    assert watch.raised is None
    return [frozenset({race.first.thread, race.second.thread}) for race in found]


# A cell records at most three readers.
def has_room(steps):
    readers: dict[int, set[int]] = {}
    for each in flat(steps):
        if isinstance(each, Touch) and each.what == "read":
            readers.setdefault(each.offset, set()).add(each.thread)
    return all(len(each) <= 3 for each in readers.values())


@st.composite
def rows(draw):
    apart = draw(st.sampled_from([4, 4, 8, -4, 28]))
    low = -min(0, apart) * (LANES - 1)
    start = low + 4 * draw(st.sampled_from([0, 0, 1, 8, 32]))
    return Row(
        draw(st.sampled_from([0, 1])), draw(st.sampled_from(["read", "write"])), start, apart
    )


STEPS = st.one_of(rows(), rows(), st.sampled_from([Meet("block"), Meet(0), Meet(1)]))
WRITE, READ = Row(0, "write", 0, 4), Row(1, "read", 0, 4)


# Each example compiles a kernel.
@settings(max_examples=max(2, settings.default.max_examples // 2))
@given(st.lists(STEPS, min_size=2, max_size=7))
@example([WRITE, READ])
@example([WRITE, Meet("block"), READ])
@example([WRITE, Row(0, "read", 4, 4), Meet(0), Row(0, "write", 0, 4)])
@example([WRITE, Meet(0), Row(0, "read", 4, 4)])
@example([READ, Meet(1), Row(0, "write", 124, -4)])
@example([Row(0, "read", 0, 4), READ, Row(0, "read", 4, 4), Meet("block"), Row(1, "write", 0, 28)])
@example([Row(0, "read", 0, 4), READ, Row(0, "read", 4, 4), Row(1, "write", 8, 4)])
def test_warps_race_if_and_only_if_brute_force_says_so(steps):
    assume(has_room(steps))
    wanted, found = expected(steps), found_in(steps)
    assert bool(found) == bool(wanted)
    assert wanted.issuperset(found)


@pytest.mark.parametrize("steps", [[WRITE, READ], [READ, WRITE]])
def test_a_comparison_that_takes_all_for_ordered_is_found_out(monkeypatch, steps):
    """Planted under names of their own, since the process keeps compiled functions by name."""
    assert expected(steps)
    assert found_in(steps)
    right, wrong = "@cudasync.race.", "@cudasync.planted."
    planted = {
        name.replace(right, wrong): text.replace(right, wrong).replace(
            "%open.now = or i32 %open, %special.bits", "%open.now = and i32 %open, 0"
        )
        for name, text in race_calls._FUNCTIONS.items()
    }
    monkeypatch.setattr(race_calls, "_FUNCTIONS", {**race_calls._FUNCTIONS, **planted})
    for room, name in ((race_accesses, "NOTE_NAME"), (race_records, "NEAR_NAME")):
        monkeypatch.setattr(room, name, getattr(room, name).replace(right, wrong))
    assert not found_in(steps)
