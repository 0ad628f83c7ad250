"""The unit of a kernel's accesses: one mark stands for a unit, if launches are recorded."""

from __future__ import annotations

import pytest
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle

FUNCTION = """.func f(.param .b64 x)
    { .reg .b64 %d; .reg .b16 %h; ld.param.b64 %d, [x]; ld.global.b16 %h, [%d]; ret; }"""
CALL = "{ .param .b64 a; st.param.b64 [a], %d0; call f, (a); }"
USED, WIDE = '.pragma "used_bytes_mask', "ld.global.v2.b64 {%d1, %d2}, [%d0];"
COPY = ".shared .align 16 .b8 room[16]; cp.async"


def unit_of(body, *, before="", compile_module=jit.compile_module, **options):
    text = kernel(f"ld.param.u64 %d0, [x]; {body} ret;", before=before)
    module = compile_module(parse(text), record=True, units=True, **options)
    return module.kernels["k"].unit


@pytest.mark.parametrize(
    ("body", "unit"),
    [
        ("", 16),
        ("ld.global.f32 %f0, [%d0]; st.global.b64 [%d0], %d0;", 4),
        ("ld.global.v2.b64 {%d1, %d2}, [%d0]; st.global.v4.f32 [%d0], {%f0, %f0, %f0, %f0};", 16),
        ("ld.global.v4.b64 {%d1, %d2, %d3, %d4}, [%d0];", 16),
        ("st.global.b64 [%d0], %d0; red.global.add.u32 [%d0+8], 1;", 4),
        ("st.global.b64 [%d0], %d0; st.global.b8 [%d0+8], %r1;", 1),
        ("st.global.b64 [%d0], %d0; ld.b16 %h1, [%d0];", 2),
        (".shared .b8 room; .local .b8 place; ld.shared.u8 %r1, [room]; st.local.u8 [place], %r1;"
         "st.global.b32 [%d0], 1;", 4),
        (f"{COPY}.cg.shared.global [room], [%d0], 16;", 16),
        (f"{COPY}.ca.shared.global [room], [%d0], 4;", 4),
        (f"{COPY}.ca.shared.global [room], [%d0], 4, %r1;", 1),
        (CALL, 2),
        (f'{USED} 0xfff"; {WIDE}', 4),
        (f'{USED} 0xff00"; {WIDE}', 8),
        (f'{USED} 0xf0f8"; {WIDE}', 1),
        (f'{USED} 0xffff"; {WIDE}', 16),
    ],
)  # fmt: skip
def test_the_smallest_access_outside_the_block_is_the_unit(body, unit):
    assert unit_of(body, before=FUNCTION) == unit


def test_constants_are_recorded_too():
    assert unit_of("ld.const.u8 %r1, [c];", before=".const .u8 c = 3;") == 1


def test_marks_are_by_the_byte_where_nothing_ensures_alignment_or_in_the_plain_lowering():
    body = "st.global.b32 [%d0], 1;"
    assert unit_of(body) == 4
    assert unit_of(body, memcheck=False) == 1
    assert unit_of(body, compile_module=oracle.compile_module) == 1
