"""What is recorded of random accesses of a warp, with every shape of address, against brute force.

The brute force goes lane by lane and byte by byte. Watched ranges may end within an access, unless
marks are by the unit of all accesses.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from helpers.checks.lane_accesses import DECLARED, LANES, ROOM, LaneAccess, lane_accesses
from helpers.lowering import bare_launch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cudasync.ptx import parse
from cudasync.softgpu import jit
from cudasync.softgpu.interface import access_marks
from cudasync.softgpu.interface.access_recording import KINDS, Recording, Touch
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.jit.checks import recording_calls

HEAD = f""".version 7.8
.target sm_80
.address_size 64
.visible .entry steps(.param .u64 room)
{{
{DECLARED}    ld.param.u64 %start, [room];
"""
WATCHED = st.sampled_from(
    [[(0, ROOM)], [(0, 200), (200, ROOM)], [(66, 319)], [(130, 140), (300, 400)]]
)
PROGRAMS = st.lists(lane_accesses(atomics=True), min_size=1, max_size=8)
WHOLE = [(0, ROOM)]


def text_of(steps):
    lines, places = HEAD.splitlines(), []
    for step in steps:
        lines += step.instructions("global")
        places.append(len(lines))
    return "\n".join([*lines, "    ret;", "}"]), places


def recorded(steps, watched, *, units=False):
    """For each watched range and kind: the bytes, and number and offset of the first access."""
    text, places = text_of(steps)
    module = jit.compile_module(parse(text), record=True, units=units)
    unit = module.kernels["steps"].unit
    assert unit == (min(each.size for each in steps) if units else 1)
    memory = bare_launch.aligned(np.zeros(ROOM, np.uint8))
    base = memory.ctypes.data
    recording = Recording([(base + low, base + high) for low, high in watched], unit=unit)
    outcome = bare_launch.run(
        module, "steps", args=[memory], grid=(1,), block=(LANES,), recording=recording
    )
    assert outcome.kind is OutcomeKind.DONE
    found = {}
    for index in range(recording.count):
        for kind in KINDS:
            ranges = recording.touched(index, kind)
            touched = {at - base for low, high in ranges for at in range(low, high)}
            first = recording.first(index, kind)
            place = None if first is None else (places.index(first.line), first.address - base)
            found[index, kind] = touched, place
    return found


def expected(steps, watched):
    found = {(index, kind): (set(), None) for index in range(len(watched)) for kind in KINDS}
    written: set[int] = set()

    def note(kind, here, number, offset):
        for index, (low, high) in enumerate(watched):
            touched, first = found[index, kind]
            if inside := {at for at in here if low <= at < high}:
                found[index, kind] = touched | inside, first or (number, offset)

    for number, step in enumerate(steps):
        for _, offset in step.lanes():
            here = set(range(offset, offset + step.size))
            if step.kind != "write":
                note(Touch.READ, here, number, offset)
                note(Touch.READ_FIRST, here - written, number, offset)
            if step.kind != "read":
                note(Touch.WRITTEN, here, number, offset)
                written |= here
    return found


# Each example compiles a kernel.
@settings(max_examples=max(2, settings.default.max_examples // 8))
@given(PROGRAMS, WATCHED)
@example([LaneAccess("write", 4, 0, 4), LaneAccess("read", 8, 0, 8)], WHOLE)
@example([LaneAccess("read", 4, 0, 8, 0, 32, 5), LaneAccess("write", 4, 0, 8, 5, 32, 5)] * 2, WHOLE)
@example([LaneAccess("atomic", 4, 0, 0), LaneAccess("read", 16, 0, 16)], [(0, 2), (2, ROOM)])
@example([LaneAccess("read", 1, 64, 1, 5, 17)] * 2 + [LaneAccess("read", 2, 0, 2)], [(66, 319)])
@example(
    [LaneAccess("write", 4, 0, 4), LaneAccess("read", 4, 0, 4), LaneAccess("read", 8, 0, 8)], WHOLE
)
def test_what_is_recorded_is_what_the_lanes_did(steps, watched):
    assert recorded(steps, watched) == expected(steps, watched)


# A kernel reads its parameter, too, but parameters are not recorded.
UNITS = st.sampled_from([2, 4, 8, 16]).flatmap(
    lambda unit: st.lists(
        lane_accesses(atomics=True).filter(lambda each: each.size >= unit), min_size=1, max_size=8
    )
)
# The last begins and ends within units, which are not accessed.
BY_UNITS = st.sampled_from([WHOLE, [(0, 208), (208, ROOM)], [(64, 320)], [(128, 144), (304, 400)]])


@settings(max_examples=max(2, settings.default.max_examples // 8))
@given(UNITS, BY_UNITS)
@example([LaneAccess("write", 4, 0, 4), LaneAccess("read", 8, 0, 8)], WHOLE)
@example([LaneAccess("write", 8, 0, 8), LaneAccess("read", 8, 256, -8, 0, 17)], WHOLE)
@example([LaneAccess("read", 4, 0, 4, 0, 32, 5), LaneAccess("write", 4, 0, 8, 5, 32, 5)] * 2, WHOLE)
@example([LaneAccess("read", 8, 0, 16, 0, 32, 5), LaneAccess("atomic", 4, 0, 8)] * 2, WHOLE)
@example([LaneAccess("write", 2, 0, 16, 0, 32, 5), LaneAccess("read", 2, 0, 8)] * 2, WHOLE)
@example([LaneAccess("write", 16, 0, 16, 5, 17)] * 2, [(128, 144), (304, 400)])
def test_marks_by_the_unit_say_the_same(steps, watched):
    assert recorded(steps, watched, units=True) == expected(steps, watched)


def test_a_range_may_begin_and_end_within_a_unit():
    steps = [LaneAccess(kind, 8, 64, 8, 0, 17) for kind in ("write", "read")] * 2
    watched = [(59, 64 + 17 * 8 + 3)]
    assert recorded(steps, watched, units=True) == expected(steps, watched)


def test_marks_by_too_large_a_unit_are_found_out(monkeypatch):
    steps = [LaneAccess("write", 4, 0, 8), LaneAccess("read", 4, 256, 4)]
    assert recorded(steps, WHOLE, units=True) == expected(steps, WHOLE)
    right = access_marks.Marks.__init__

    def wrong(self, start, end, unit):
        right(self, start, end, 2 * unit)

    monkeypatch.setattr(access_marks.Marks, "__init__", wrong)
    assert recorded(steps, WHOLE, units=True) != expected(steps, WHOLE)


def test_a_recording_that_misses_early_reads_is_found_out(monkeypatch):
    steps = [LaneAccess("read", 4, 256, 4, 0, 17), LaneAccess("read", 4, 0, 4, 0, 17)]
    assert recorded(steps, WHOLE) == expected(steps, WHOLE)
    right = recording_calls.marking

    def wrong(size, bits, lanes, unit):
        made = right(size, bits, lanes, unit)

        def update(prefix, type_, width):
            zero = "zeroinitializer" if type_.startswith("<") else "0"
            text = made.update(prefix, type_, width)
            return text.replace(f"%{prefix}touched, %{prefix}early", f"%{prefix}touched, {zero}")

        return replace(made, name=f"{made.name}.planted", update=update)

    monkeypatch.setattr(recording_calls, "marking", wrong)
    assert recorded(steps, WHOLE) != expected(steps, WHOLE)
