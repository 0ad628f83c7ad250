"""Segments that differ only in numbers share one function, and compute the same as before."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.lowering.jit_launch import compiled, start

from cudasync.ptx import parse
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.jit.block_loop.function_merging import share, tables
from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
from cudasync.softgpu.jit.pipeline import lower
from cudasync.softgpu.jit.transforms.program import prepare

USUAL = Variant(lanes=32, is_rowwise=True, is_whole=True)
HEAD = """\
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 target)
{
    .reg .u32 %t, %at, %a<20>;
    .reg .u64 %rd, %rd_base;
    .shared .align 4 .b8 tile[1024];
    ld.param.u64 %rd_base, [target];
    mov.u32 %t, %tid.x;
    mov.u32 %at, tile;
    mad.lo.u32 %at, %t, 4, %at;
    st.shared.u32 [%at], %t;
    bar.sync 0;
"""
TAIL = """
    ld.shared.u32 %a0, [%at];
    mul.wide.u32 %rd, %t, 4;
    add.s64 %rd, %rd_base, %rd;
    st.global.u32 [%rd], %a0;
}
"""


def rounds(*steps):
    """Each round adds the word that lies `step` words further in a ring of 128."""
    text = HEAD
    for index, step in enumerate(steps, 1):
        text += f"""
    add.u32 %a{index}, %t, {step};
    and.b32 %a{index}, %a{index}, 127;
    shl.b32 %a{index}, %a{index}, 2;
    mov.u32 %a0, tile;
    add.u32 %a{index}, %a{index}, %a0;
    ld.shared.u32 %a{index}, [%a{index}];
    bar.sync 0;
    ld.shared.u32 %a0, [%at];
    add.u32 %a0, %a0, %a{index};
    st.shared.u32 [%at], %a0;
    bar.sync 0;
"""
    return text + TAIL


def functions_of(text):
    module = parse(text)
    lowered = lower(prepare(module, module.kernels[0]), USUAL, Settings()).text
    return len(re.findall(r"define internal i64 @segment", lowered))


def body(*lines):
    return ["entry:", *("  " + line for line in lines), "}"]


def test_an_unrolled_loop_is_as_many_functions_as_one_trip_has_segments():
    few, many = functions_of(rounds(*[1] * 4)), functions_of(rounds(*range(1, 17)))
    assert many == few < 10


@pytest.mark.parametrize("steps", [(1, 2, 4, 8, 16, 32, 64), (3, 3, 127, 5, 0)])
def test_each_segment_has_its_own_numbers(steps):
    result = np.zeros(128, np.uint32)
    assert start(compiled(rounds(*steps)), "test", 1, 128, result).run().kind is OutcomeKind.DONE
    expected = np.arange(128, dtype=np.uint32)
    for step in steps:
        expected = expected + np.roll(expected, -step)
    assert (result == expected).all()


def test_names_mean_nothing_and_numbers_become_loads():
    found = share(
        [
            body(f"%x{n} = add i32 %now, {5 + n}", f"store i32 %x{n}, ptr %y", f"br label %z.{n}")
            for n in range(3)
        ]
    )
    assert [each.owner for each in found] == [0, 0, 0]
    assert found[0].rows == {0: ("5",), 1: ("6",), 2: ("7",)}
    assert found[0].lines[1:4] == [
        "  %number.0.1.0.at = getelementptr i64, ptr %numbers, i64 0",
        "  %number.0.1.0 = load i32, ptr %number.0.1.0.at",
        "  %x0 = add i32 %now, %number.0.1.0",
    ]


def test_a_number_in_all_lanes_is_spread_where_it_is_used():
    lines = [body(f"%x = icmp slt <32 x i32> %v, splat (i32 {n})") for n in (1, 2, 3)]
    shared = share(lines)[0]
    assert "  %x = icmp slt <32 x i32> %v, %number.0.2.0.all" in shared.lines
    assert shared.rows[2] == ("3",)


def test_tables_have_a_row_for_each_segment():
    bodies = [body(f"store i64 {n}, ptr @access.{n}") for n in (7, 8, 9)]
    text, width = tables(share([body("ret i64 0"), *bodies]))
    assert width == 2
    assert text["@segments"].count("@segment.1") == 3
    assert "[i64 8, i64 ptrtoint (ptr @access.8 to i64)]" in text["@numbers"]
    assert text["@numbers"].startswith("private constant [4 x [2 x i64]] [[2 x i64] [i64 0, i64 0]")


@pytest.mark.parametrize(
    "line",
    [
        "%x = alloca i32, i32 {}",
        "%x = shufflevector <2 x i32> %a, <2 x i32> %b, <2 x i32> <i32 0, i32 {}>",
        "%x = extractelement <32 x i32> %a, i32 {}",
        "%x = load i32, ptr %a, align {}",
        "switch i32 %x, label %y [i32 {}, label %z]",
        "call void @llvm.prefetch.p0(ptr %a, i32 0, i32 {}, i32 1)",
        "%x = load <{} x i32>, ptr %a",
        "br label %x, !prof !{}",
    ],
)
def test_what_has_to_be_a_constant_is_never_loaded(line):
    bodies = [body(line.format(n)) for n in (1, 2, 4)]
    assert [each.owner for each in share(bodies)] == [0, 1, 2]


def test_what_differs_in_more_than_numbers_is_not_shared():
    for first, other in [
        ("%x = add i32 %a, %a", "%x = add i32 %a, %b"),
        ("%x = add i32 %a, 1", "%x = sub i32 %a, 1"),
        ("%x = fadd float %a, 1.0", "%x = fadd float %a, 2.0"),
        ("%x = fadd float %a, 0x3FF0000000000000", "%x = fadd float %a, 0x4000000000000000"),
        ("%x = add i32 %ctaid.x, 1", "%x = add i32 %ctaid.y, 1"),
    ]:
        lines = ["%a = load i32, ptr %job", "%b = load i32, ptr %job"]
        bodies = [body(*lines, first, f"store i32 {n}, ptr %now") for n in range(3)]
        bodies[1] = body(*lines, other, "store i32 1, ptr %now")
        assert share(bodies)[1].owner == 1, other
