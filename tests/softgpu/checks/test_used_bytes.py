"""Compilers widen a load, and say in a pragma which of its bytes the program uses."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.softgpu.jit.checks.recording_calls import runs
from cudasync.testing import check

pytestmark = pytest.mark.lazy

# Each lane writes the first three words of its 16 bytes, and then reads 16 bytes.
PADDED = """.version 8.3
.target sm_80
.address_size 64
.visible .entry padded(.param .u64 memory)
{
    .shared .align 16 .b8 room[512];
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [memory];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 16;
    START
    add.s64 %rd3, %rd3, %rd2;
    st.SPACE.u32 [%rd3+OTHER], %r1;
    st.SPACE.u32 [%rd3+4], %r1;
    st.SPACE.u32 [%rd3+8], %r1;
    bar.sync 0;
    PRAGMA
    ld.SPACE.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3];
    add.s32 %r2, %r2, %r3;
    st.SPACE.u32 [%rd3+4], %r2;
    ret;
}
"""
STARTS = {"shared": "mov.u64 %rd3, room;", "global": "cvta.to.global.u64 %rd3, %rd1;"}


def told(space, pragma, *, other=0):
    text = PADDED.replace("SPACE", space).replace("PRAGMA", pragma).replace("OTHER", str(other))
    text = text.replace("START", STARTS[space])
    kernel = cs.Module.from_ptx(text).kernel("padded")

    def program():
        memory = cs.DeviceBuffer(512)
        cs.launch(kernel, grid=1, block=32, args=(memory,))
        cs.Device(0).synchronize()

    return {each.kind for each in check(program, kinds=["init", "race"])}


@pytest.mark.parametrize("space", STARTS)
@pytest.mark.parametrize(
    ("pragma", "other", "kinds"),
    [
        ("", 0, {"init"}),
        ('.pragma "used_bytes_mask 0xfff";', 0, set()),
        ('.pragma "used_bytes_mask 4095";', 12, {"init"}),
        ('.pragma "used_bytes_mask 0xfff0";', 12, set()),
        ('.pragma "used_bytes_mask 0xfff0";', 0, {"init"}),
        ('.pragma "used_bytes_mask 0x0f0f";', 0, set()),
        ('.pragma "used_bytes_mask 0xf00f";', 0, {"init"}),
        ('.pragma "nounroll";', 0, {"init"}),
    ],
)
def test_a_byte_counts_as_read_if_it_is_used(space, pragma, other, kinds):
    assert told(space, pragma, other=other) == kinds


def test_a_pragma_is_for_the_next_instruction_alone():
    behind = '.pragma "used_bytes_mask 0xfff"; mov.u32 %r6, 0;'
    assert told("shared", behind) == {"init"}


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_runs_are_the_ones_of_a_mask(mask, size):
    found = list(runs(mask, size))
    ones = {at for at in range(size) if mask >> at & 1}
    assert {start + n for start, count in found for n in range(count)} == ones
    assert all(start + count < after for (start, count), (after, _) in pairwise(found))
