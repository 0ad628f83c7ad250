"""Strides of accesses from trip to trip of a loop, and the memory that kernels prefetch."""

from __future__ import annotations

import re

import pytest

from bench.softgpu import kernels as softgpu_kernels
from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.analysis.induction_strides import find_strides
from cudasync.softgpu.jit.analysis.reconvergence_order import Flow

LOOP = """
.version 7.5
.target sm_75
.address_size 64
.visible .entry strides()
{{
  .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
$next:
{body}
  @%p1 bra $next;
  ret;
}}
"""


def strides_of(body):
    kernel = parse(LOOP.format(body=body)).kernels[0]
    flow = Flow(kernel, lambda _: False)
    return list(find_strides(flow, flow.loops[0]).values())


@pytest.mark.parametrize(
    ("body", "strides"),
    [
        # An index that advances by a loop-invariant value.
        (
            "mul.wide.s32 %rd1, %r1, 4; add.s64 %rd2, %rd1, %rd3; ld.global.f32 %f1, [%rd2];"
            "add.s32 %r1, %r1, %r2;",
            [{"%r2": 4}],
        ),
        # A loop that the compiler has unrolled: both accesses advance by two steps.
        (
            "ld.global.f32 %f1, [%rd1]; add.s64 %rd2, %rd1, %rd3; st.global.f32 [%rd2+4], %f1;"
            "add.s64 %rd1, %rd2, %rd3;",
            [{"%rd3": 2}, {"%rd3": 2}],
        ),
        (
            "mad.wide.s32 %rd1, %r1, 8, %rd3; ld.global.f32 %f1, [%rd1];"
            "sub.s32 %r3, %r1, %r2; add.s32 %r1, %r3, -3;",
            [{"%r2": -8, "": -24}],
        ),
        ("shl.b64 %rd1, %rd2, 3; ld.global.f32 %f1, [%rd1]; add.s64 %rd2, %rd2, 5;", [{"": 40}]),
        # Both terms of the address advance.
        (
            "cvt.s64.s32 %rd1, %r1; add.s64 %rd2, %rd1, %rd4; ld.global.f32 %f1, [%rd2];"
            "add.s32 %r1, %r1, %r2; sub.s64 %rd4, %rd4, 7;",
            [{"%r2": 1, "": -7}],
        ),
        # Addresses that do not advance, or advance by an unknown distance.
        ("ld.global.f32 %f1, [%rd1];", []),
        ("ld.global.f32 %f1, [%rd1]; sub.s64 %rd1, %rd2, %rd1;", []),
        ("ld.global.f32 %f1, [%rd1]; add.s64 %rd1, %rd1, %rd1;", []),
        ("ld.global.f32 %f1, [%rd1]; ld.global.u64 %rd1, [%rd2];", []),
        ("ld.global.f32 %f1, [%rd1]; @%p2 add.s64 %rd1, %rd1, %rd3;", []),
        (
            "ld.global.f32 %f1, [%rd1]; add.s32 %r1, %r1, %r1; add.s64 %rd1, %rd1, %rd3;",
            [{"%rd3": 1}],
        ),
        ("ld.global.f32 %f1, [%rd1]; add.s64 %rd3, %rd3, 1; add.s64 %rd1, %rd1, %rd3;", []),
        ("mul.wide.s32 %rd1, %r1, %r2; ld.global.f32 %f1, [%rd1]; add.s32 %r1, %r1, 1;", []),
    ],
)  # fmt: skip
def test_an_access_goes_on_by_a_sum_of_what_the_loop_leaves_alone(body, strides):
    assert strides_of(body) == strides


def test_of_a_loop_around_another_nothing_is_said():
    inner = "$inner: add.s64 %rd1, %rd1, 4; @%p2 bra $inner;"
    assert not strides_of(f"ld.global.f32 %f1, [%rd1]; {inner}")


@pytest.fixture(scope="module")
def texts():
    module = compile_module(parse(softgpu_kernels.TEXT.read_text()), memcheck=False)
    kernels = module.kernels.items()
    return {
        name: kernel.text(kernel.variant(softgpu_kernels.BLOCKS[name])).text
        for name, kernel in kernels
    }


def asked_for(text):
    """For each segment: its prefetches, and how many of them are at its loads and stores."""
    found = {}
    for part in re.split(r"^define ", text, flags=re.MULTILINE)[1:]:
        moves = re.findall(
            r"(?:load <\d+ x float>|store <\d+ x float> %\w+), ptr (%t\w+), align 1", part
        )
        sources = dict(re.findall(r"(%\w+) = getelementptr i8, ptr (%\w+), i64", part))
        asked = [sources[each] for each in re.findall(r"@llvm\.prefetch\.p0\(ptr (%\w+)", part)]
        # The first line is at the address itself, so its prefetch is one step away if it is not
        # moved.
        name = part.split("(")[0].split("@")[1]
        found[name] = (len(asked), sum(each in moves for each in asked))
    return found


@pytest.mark.parametrize(
    "name", ["saxpy", "stencil", "mandelbrot", "black_scholes", "matmul_naive"]
)
def test_warps_that_go_through_memory_in_order_ask_for_none(texts, name):
    assert "@llvm.prefetch" not in texts[name]


@pytest.mark.parametrize(("name", "count"), [("grid_stride", 4), ("block_sum", 2)])
def test_a_loop_over_the_grid_asks_for_its_next_trip(texts, name, count):
    found = asked_for(texts[name])
    assert (count, 0) in found.values()
    # Into the first-level cache.
    assert "i32 0, i32 3, i32 1)" in texts[name]


def test_between_barriers_the_memory_behind_is_asked_for(texts):
    # Four runs of two lines each are loaded and stored.
    found = asked_for(texts["transpose"])
    assert found["segment.0"] == found["segment.1"] == (8, 8)


@pytest.mark.parametrize(
    # One loop, or the compiler's two: one unrolled by four, and one for the remaining trips.
    ("name", "trips"),
    [("block_sum", {4}), ("grid_stride", {2}), ("histogram", {16})],
)
def test_who_moves_little_in_a_trip_makes_several_before_the_next_warp(texts, name, trips):
    assert {int(each) for each in re.findall(r"store i32 (\d+), ptr %trips", texts[name])} == trips
