"""Which loads only guess what a compare-and-swap will find."""

from __future__ import annotations

import pytest

from cudasync.ptx import parse
from cudasync.ptx.compare_and_swap import mark_guesses

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [a];
    cvta.to.global.u64 %rd2, %rd1;
    add.s64 %rd3, %rd2, 4;
    FIRST
    mov.u32 %r2, %r1;
$again:
    add.s32 %r3, %r2, 1;
    atom.global.cas.b32 %r4, SWAPPED, %r2, %r3;
    setp.ne.u32 %p1, %r4, %r2;
    mov.u32 %r2, %r4;
    @%p1 bra $again;
    ret;
}
"""


def guesses(first, swapped="[%rd2]"):
    (kernel,) = parse(TEXT.replace("FIRST", first).replace("SWAPPED", swapped)).functions
    mark_guesses(kernel)
    return [each.text for each in kernel.body if each.is_guess]


@pytest.mark.parametrize(
    ("first", "swapped"),
    [
        ("ld.global.u32 %r1, [%rd2];", "[%rd2]"),
        ("ld.global.u32 %r1, [%rd2+4];", "[%rd3]"),
        ("ld.global.f32 %r1, [%rd3];", "[%rd2+4]"),
    ],
)
def test_a_load_of_the_same_word_is_a_guess(first, swapped):
    assert len(guesses(first, swapped)) == 1


@pytest.mark.parametrize(
    "first",
    [
        "ld.global.u32 %r1, [%rd3];",
        "ld.global.u16 %r1, [%rd2];",
        "ld.global.u32 %r5, [%rd2]; mov.u32 %r1, 0;",
        "ld.global.u32 %r5, [%rd2]; add.s32 %r1, %r5, 1;",
    ],
)
def test_any_other_load_is_none(first):
    assert guesses(first) == []


def test_registers_that_move_in_a_circle_end_the_search():
    circle = "mov.u64 %rd4, %rd5; mov.u64 %rd5, %rd4; ld.global.u32 %r1, [%rd4];"
    assert guesses(circle) == []
