"""The check finds the reads of unwritten shared memory that brute force finds, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.softgpu.interface import initialisation_windows
from cudasync.testing import check

pytestmark = pytest.mark.lazy

ROOM, LANES = 512, 32
TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
HEAD = f""".version 7.8
.target sm_80
.address_size 64
.visible .entry steps()
{{
    .shared .align 16 .b8 room[{ROOM}];
    .reg .u32 %lane, %at, %base, %order;
    .reg .u16 %v1, %v2;
    .reg .u32 %v4;
    .reg .u64 %v8;
    .reg .pred %p;
    mov.u32 %lane, %tid.x;
    mov.u32 %base, room;
"""


@st.composite
def accesses(draw):
    """Draw an access of lanes `first` to `last`: read or write, size, start, and distance in
    bytes."""
    size = draw(st.sampled_from(sorted(TYPES)))
    apart = draw(st.sampled_from([0, size, size, 2 * size, -size]))
    low = -min(0, apart * (LANES - 1))
    high = ROOM - size - max(0, apart * (LANES - 1))
    start = draw(st.integers(low // size, max(low, high) // size)) * size
    first = draw(st.sampled_from([0, 0, 0, 5]))
    last = draw(st.sampled_from([LANES, LANES, 17]))
    return draw(st.booleans()), size, start, apart, first, last


PROGRAMS = st.lists(accesses(), min_size=1, max_size=8)


def text_of(steps):
    lines = [HEAD]
    for reads, size, start, apart, first, last in steps:
        lines.append(f"    mad.lo.s32 %at, %lane, {apart}, %base;")
        # Guard the access: it runs in lanes `first` to `last`, in lane order.
        lines.append(f"    sub.u32 %order, %lane, {first};")
        lines.append(f"    setp.lt.u32 %p, %order, {last - first};")
        how = f"{TYPES[size]} %v{size}, [%at+{start}]"
        if not reads:
            how = f"{TYPES[size]} [%at+{start}], %v{size}"
        lines.append(f"    @%p {'ld' if reads else 'st'}.shared.{how};")
    return "\n".join([*lines, "    ret;", "}"])


def early(steps):
    """The numbers of the reads of unwritten bytes. A reported byte counts as written."""
    written: set[int] = set()
    found = set()
    for number, (reads, size, start, apart, first, last) in enumerate(steps):
        for lane in range(first, last):
            here = set(range(start + lane * apart, start + lane * apart + size))
            if reads and not here <= written:
                found.add(number)
            written |= here
    return found


def told(steps):
    text = text_of(steps)
    kernel = cs.Module.from_ptx(text).kernel("steps")

    def program():
        cs.launch(kernel, grid=1, block=LANES, args=())
        cs.Device(0).synchronize()

    lines = [n for n, line in enumerate(text.splitlines(), 1) if ".shared.u" in line]
    found = check(program, kinds=["init"])
    return {lines.index(access.ptx_line) for each in found for access in each.accesses}


# Each example compiles a kernel.
@settings(max_examples=max(2, settings.default.max_examples // 8))
@given(PROGRAMS)
@example([(False, 4, 0, 4, 0, 32), (True, 4, 0, 4, 0, 32), (True, 8, 64, 8, 0, 32)])
@example([(False, 1, 3, 1, 0, 32), (True, 1, 3, 1, 0, 32), (True, 1, 4, 1, 0, 32)])
@example([(False, 2, 0, 0, 0, 32), (True, 2, 0, 0, 0, 32), (True, 4, 0, 0, 0, 32)])
@example([(False, 8, 256, 8, 0, 32), (True, 8, 504, -8, 0, 32)])
def test_a_read_is_told_exactly_where_a_byte_was_not_written(steps):
    assert told(steps) == early(steps)


def test_a_check_that_takes_all_for_written_is_found_out(monkeypatch):
    steps = [(True, 4, 0, 4, 0, 32)]
    assert early(steps) == {0}
    monkeypatch.setattr(initialisation_windows.Windows, "early", lambda *_: iter(()))
    assert told(steps) == set()
