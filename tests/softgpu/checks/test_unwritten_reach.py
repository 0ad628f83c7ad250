"""Reads of unwritten global memory, of random launches and copies, against a model by the byte.

A launch is watched only where it may reach unwritten memory. The model knows nothing of that.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from hypothesis import example, given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.softgpu.core.checks import unwritten_reach, watching
from cudasync.testing import check

pytestmark = pytest.mark.lazy

# Adjacent allocations: each is as large as what an allocation is aligned to.
COUNT = 128
HEAD = ".version 6.4\n.target sm_75\n.address_size 64\n"
FRAME = """
.visible .entry {name}(.param .u64 target, .param .u64 source, .param .u32 count)
{{
    .reg .b32 %r<4>;
    .reg .b64 %d<6>;
    .reg .pred %p;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %d0, [target];
    ld.param.u64 %d1, [source];
    ld.param.u32 %r1, [count];
    setp.ge.u32 %p, %r0, %r1;
    @%p ret;
    mul.wide.u32 %d2, %r0, 4;
    add.s64 %d3, %d0, %d2;
    add.s64 %d4, %d1, %d2;
{body}
    ret;
}}
"""
BODIES = {
    "copies": "    ld.global.b32 %r2, [%d4]; st.global.b32 [%d3], %r2;",
    "fills": "    st.global.b32 [%d3], %r0;",
    "adds": "    red.global.add.u32 [%d3], 1;",
    # The source is a pointer behind the last element.
    "ends": "    sub.s64 %d4, %d1, %d2; ld.global.b32 %r2, [%d4+-4]; st.global.b32 [%d3], %r2;",
    # The source holds a pointer; it is written by the host before.
    "follows": "    ld.global.b64 %d4, [%d1]; add.s64 %d4, %d4, %d2; ld.b32 %r2, [%d4];",
}
BUFFERS = 3


@st.composite
def steps(draw):
    what = draw(st.sampled_from([*BODIES, "memset"]))
    target, source = (draw(st.integers(0, BUFFERS - 1)) for _ in range(2))
    return what, target, source, draw(st.sampled_from([COUNT, COUNT, 40]))


def early(program):
    """The numbers of the launches that read what nobody wrote."""
    written = np.zeros((BUFFERS, COUNT), bool)
    found = set()
    for number, (what, target, source, count) in enumerate(program):
        part = slice(COUNT - count, COUNT) if what == "ends" else slice(0, count)
        reads = {"copies": source, "ends": source, "adds": target, "follows": source}.get(what)
        # A lane reads its element before the lane writes.
        if reads is not None and not written[reads, part].all():
            found.add(number)
        if what != "follows":
            written[target, :count] = True
    return found


@cache
def loaded():
    text = HEAD + "".join(FRAME.format(name=n, body=body) for n, body in BODIES.items())
    module = cs.Module.from_ptx(text)
    return {name: module.kernel(name) for name in BODIES}


def told(program):
    kernels = loaded()

    def run():
        # In the order of their addresses, so that the end of one may be another's start.
        made = [cs.DeviceBuffer(4 * COUNT) for _ in range(BUFFERS)]
        buffers = sorted(made, key=lambda each: each.ptr)
        table = cs.DeviceBuffer(8 * BUFFERS)
        cs.memcpy_async(table, np.array([each.ptr for each in buffers], np.uint64))
        for what, target, source, count in program:
            to, of = buffers[target].ptr, buffers[source].ptr
            if what == "memset":
                ok(driver.cuMemsetD8(to, 0, 4 * count))
                continue
            of += 4 * COUNT if what == "ends" else 0
            of = table.ptr + 8 * source if what == "follows" else of
            args = np.uint64(to), np.uint64(of), np.uint32(count)
            cs.launch(kernels[what], grid=1, block=COUNT, args=args)
        cs.Device(0).synchronize()

    found = check(run, kinds=["init"])
    return {access.what.split()[-1] for each in found for access in each.accesses}


def names(program, numbers):
    return {program[number][0] for number in numbers}


@given(st.lists(steps(), min_size=1, max_size=6))
@example([("fills", 0, 1, COUNT), ("copies", 1, 0, COUNT), ("copies", 2, 1, COUNT)])
@example([("fills", 0, 1, COUNT), ("ends", 1, 0, 40), ("ends", 2, 1, COUNT)])
@example([("fills", 1, 0, 40), ("follows", 0, 1, 40), ("follows", 0, 1, COUNT)])
@example([("adds", 0, 1, 40), ("memset", 1, 0, COUNT), ("adds", 1, 1, COUNT)])
def test_launches_that_read_unwritten_memory_are_told_and_no_others(program):
    assert told(program) == names(program, early(program))


def test_only_launches_that_reach_unwritten_memory_run_a_recorded_twin(monkeypatch):
    exchanged = []
    right = watching.LaunchWatching._twin

    def counted(self, function, **options):
        exchanged.append((function.name, options["record"], options.get("reads")))
        return right(self, function, **options)

    monkeypatch.setattr(watching.LaunchWatching, "_twin", counted)
    program = [("fills", 0, 1, COUNT), ("copies", 1, 0, COUNT), ("copies", 1, 0, COUNT)]
    assert told([*program, ("adds", 2, 0, COUNT), ("adds", 1, 0, COUNT)]) == {"adds"}
    recorded = [each for each in exchanged if each[1]]
    # A write to unwritten memory is recorded without the loads of written memory.
    assert recorded == [("fills", True, False), ("copies", True, False), ("adds", True, True)]


@pytest.mark.parametrize("planted", ["nothing", "no reads", "no beyond"])
def test_a_reach_that_is_too_small_is_found_out(monkeypatch, planted):
    reach = unwritten_reach.UnwrittenReach
    right = reach.needed
    program = [("copies", 1, 0, COUNT)]
    if planted == "no beyond":
        program = [("follows", 0, 1, COUNT)]
        made = unwritten_reach._pointers
        monkeypatch.setattr(unwritten_reach, "_pointers", lambda of: made(of) or [])
    else:

        def wrong(self, command, unwritten):
            ranges = right(self, command, unwritten).ranges if planted == "no reads" else []
            return unwritten_reach.Needed(ranges, reads=False)

        monkeypatch.setattr(reach, "needed", wrong)
    assert early(program)
    assert told(program) == set()
