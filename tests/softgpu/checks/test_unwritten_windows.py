"""Reads of shared memory that nobody wrote, of random accesses, against brute force by the byte."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.checks.lane_accesses import DECLARED, LANES, ROOM, LaneAccess, lane_accesses
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.softgpu.interface import initialisation_windows
from cudasync.softgpu.jit.checks import initialisation_calls
from cudasync.testing import check

pytestmark = pytest.mark.lazy

HEAD = f""".version 7.8
.target sm_80
.address_size 64
.visible .entry steps()
{{
    .shared .align 16 .b8 room[{ROOM}];
{DECLARED}    mov.u32 %base, room;
    mov.u64 %start, room;
    cvta.shared.u64 %start, %start;
"""
# Each access, and whether its address is a generic one.
PROGRAMS = st.lists(st.tuples(lane_accesses(), st.booleans()), min_size=1, max_size=8)


def shared(*accesses):
    return [(LaneAccess(*each), False) for each in accesses]


# A write of all of the memory, by adjacent lanes.
WHOLE = ("write", 16, 0, 16)


def text_of(steps):
    lines = HEAD.splitlines()
    places = []
    for step, is_generic in steps:
        lines += step.instructions("" if is_generic else "shared")
        places.append(len(lines))
    return "\n".join([*lines, "    ret;", "}"]), places


def early(steps):
    """The numbers of the reads of bytes that nobody wrote; what was told counts as written."""
    written: set[int] = set()
    found = set()
    for number, (step, _) in enumerate(steps):
        for _, offset in step.lanes():
            here = set(range(offset, offset + step.size))
            if step.kind == "read" and not here <= written:
                found.add(number)
            written |= here
    return found


def told(steps, blocks=1):
    text, places = text_of(steps)
    kernel = cs.Module.from_ptx(text).kernel("steps")

    def program():
        cs.launch(kernel, grid=blocks, block=LANES, args=())
        cs.Device(0).synchronize()

    found = check(program, kinds=["init"])
    return {places.index(access.ptx_line) for each in found for access in each.accesses}


# Each example compiles a kernel.
@settings(max_examples=max(2, settings.default.max_examples // 8))
@given(PROGRAMS)
@example(shared(("write", 4, 0, 4), ("read", 4, 0, 4), ("read", 8, 64, 8)))
@example(shared(("write", 1, 3, 1), ("read", 1, 3, 1), ("read", 1, 4, 1)))
@example(shared(("write", 2, 0, 0), ("read", 2, 0, 0), ("read", 4, 0, 0)))
@example(shared(("write", 8, 256, 8), ("read", 8, 504, -8)))
@example(shared(("write", 4, 0, 8, 0, 32, 5), ("read", 4, 0, 8, 0, 32, 1), ("read", 8, 0, 8)))
@example(shared(("write", 4, 0, 4, 0, 32, 1, True), ("read", 8, 0, 8, 0, 16)))
@example(shared(("read", 4, 0, 4), WHOLE, ("read", 4, 0, 4, 0, 32, 5)))
def test_a_read_is_told_exactly_where_a_byte_was_not_written(steps):
    # The second block finds nothing of the first block's writes.
    assert told(steps, blocks=2) == early(steps)


def test_the_memory_of_each_block_is_unwritten_when_the_block_begins():
    """Blocks run on several threads; each reads what only the block before it has written."""
    assert told([*shared(("read", 4, 0, 4), WHOLE, ("read", 8, 0, 8))], blocks=64) == {0}


def test_a_check_that_takes_all_for_written_is_found_out(monkeypatch):
    steps = shared(("read", 4, 0, 4))
    assert early(steps) == {0}
    monkeypatch.setattr(initialisation_windows.Windows, "early", lambda *_: iter(()))
    assert told(steps) == set()


def test_a_wrong_count_of_written_bytes_is_found_out(monkeypatch):
    """Planted: the first write counts as one of all the memory, so the check of the block ends."""
    steps = shared(("write", 4, 0, 0), ("read", 4, 0, 4))
    assert told(steps) == early(steps) == {1}
    right = initialisation_calls._marking

    def wrong(*args, **options):
        made = right(*args, **options)
        ends = "  store i64 %block, ptr %written.block.at"
        return replace(made, name=f"{made.name}.planted", count=lambda *_: ends)

    monkeypatch.setattr(initialisation_calls, "_marking", wrong)
    # Another text, so that the kernel is compiled anew.
    steps = shared(("write", 4, 4, 0), ("read", 4, 0, 4))
    assert early(steps) == {1}
    assert told(steps) == set()
