"""Kernels are cut at their suspension points: the segments, and the values kept between them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.lowering.assembly import Code, assembly, functions
from helpers.lowering.jit_launch import compiled, corpus, run

from bench.softgpu import kernels
from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.block_loop import parallel_regions
from cudasync.softgpu.jit.control_flow.spill_frame import lay_out

# A grid-stride loop that lanes leave one by one, and behind it a barrier for all lanes.
STRIDE = """
.version 7.5
.target sm_75
.address_size 64
.visible .entry stride(.param .u64 out, .param .u32 n)
{
  .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<6>;
  .shared .align 4 .b8 seen[4];
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %nctaid.x;
  mad.lo.s32 %r6, %r3, %r4, %r2;
  mul.lo.s32 %r7, %r4, %r5;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra $shared;
  mov.u32 %r8, 0;
  st.shared.u32 [seen], %r8;
$shared:
  bar.sync 0;
  mov.u32 %r9, 0;
  setp.ge.s32 %p1, %r6, %r1;
  @%p1 bra $behind;
$next:
  mul.wide.s32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r10, [%rd3+64];
  add.u32 %r9, %r9, %r10;
  add.s32 %r6, %r6, %r7;
  setp.lt.s32 %p2, %r6, %r1;
  @%p2 bra $next;
$behind:
  atom.shared.add.u32 %r10, [seen], %r9;
  bar.sync 0;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra $out;
  ld.shared.u32 %r11, [seen];
  mul.wide.s32 %rd4, %r3, 4;
  add.s64 %rd5, %rd1, %rd4;
  st.global.u32 [%rd5], %r11;
$out:
  ret;
}
"""

# A grid-stride loop in such a loop: lanes that left the inner loop wait in the outer loop.
NESTED = """
.version 7.5
.target sm_75
.address_size 64
.visible .entry nested(.param .u64 in, .param .u64 out, .param .u32 n, .param .u32 rounds)
{
  .reg .pred %p<3>; .reg .b32 %r<14>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r12, [rounds];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %nctaid.x;
  mad.lo.s32 %r6, %r3, %r4, %r2;
  mul.lo.s32 %r7, %r4, %r5;
  mov.u32 %r8, %r6;
  mov.u32 %r9, 0;
  setp.ge.s32 %p1, %r8, %r1;
  @%p1 bra $out;
$outer:
  mul.wide.s32 %rd3, %r8, 4;
  add.s64 %rd4, %rd1, %rd3;
  ld.global.u32 %r10, [%rd4];
  mov.u32 %r11, %r6;
$inner:
  setp.ge.s32 %p2, %r11, %r10;
  @%p2 bra $behind;
  mul.wide.s32 %rd5, %r11, 4;
  add.s64 %rd6, %rd1, %rd5;
  ld.global.u32 %r13, [%rd6];
  mad.lo.s32 %r9, %r9, 3, %r13;
  add.s32 %r11, %r11, %r7;
  bra $inner;
$behind:
  add.s64 %rd7, %rd2, %rd3;
  st.global.u32 [%rd7], %r9;
  add.s32 %r8, %r8, %r7;
  setp.lt.s32 %p1, %r8, %r1;
  @%p1 bra $outer;
$out:
  ret;
}
"""


def text_of(module, name, block):
    kernel = module.kernels[name]
    return kernel.text(kernel.variant(block)).text


def segments_of(text):
    """The function of each segment. Segments that differ only in numbers share one function."""
    return re.findall(r"ptr @segment\.(\d+)", text)


@pytest.fixture(scope="module")
def bench():
    return compile_module(parse(kernels.TEXT.read_text()), memcheck=False)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("scan", 22),
        ("matmul16", 3),
        ("matmul32", 3),
        ("transpose", 2),
        ("nbody", 3),
        ("saxpy", 0),
        ("mandelbrot", 0),
        # A barrier before the loop, one behind the loop, and the loop itself.
        ("histogram", 4),
        ("grid_stride", 3),
        ("block_sum", 11),
    ],
)
def test_a_kernel_has_a_segment_for_each_stop_and_one_to_begin_with(bench, name, count):
    text = text_of(bench, name, kernels.BLOCKS[name])
    assert len(segments_of(text)) == count
    assert ("@warp(" in text) == (count == 0)


@pytest.mark.parametrize("name", ["scan", "matmul16", "transpose"])
def test_the_loops_over_warps_call_nothing_where_every_lane_is_there(bench, name):
    whole = assembly(text_of(bench, name, kernels.BLOCKS[name]))
    for each in functions(whole):
        if each.startswith("segment"):
            code = Code(whole, each)
            (loop,) = code.innermost_loops()
            assert code.has_way_round(loop)


def test_a_way_round_a_loop_is_one_that_passes_no_call():
    loop = "\t.type\tf,@function\nf:\n\tnop\n.LBB0_1:\n\tje\t.LBB0_2\n\tcallq\t*%rax\n"
    end = "\tjne\t.LBB0_1\n\tretq\n.Lfunc_end0:\n"
    around = Code(f"\n{loop}.LBB0_2:\n{end}", "f")
    (inner,) = around.innermost_loops()
    assert around.has_way_round(inner)
    through = Code(f"\n{loop.replace('je', 'xx')}.LBB0_2:\n{end}", "f")
    (inner,) = through.innermost_loops()
    assert not through.has_way_round(inner)


@pytest.mark.parametrize("memcheck", [False, True])
@pytest.mark.parametrize("block", [32, 96, 250])
@pytest.mark.parametrize("n", [1, 37, 600, 5003])
def test_no_barrier_opens_while_others_are_still_in_step(block, n, memcheck):
    module = compiled(STRIDE, memcheck=memcheck)
    assert len(segments_of(text_of(module, "stride", (block, 1, 1)))) == 4
    blocks = 3
    x = np.random.default_rng(5).integers(0, 100, n + 16, np.uint32)
    before = x.copy()
    run(module, "stride", blocks, block, x, n)
    thread = np.arange(n) % (blocks * block)
    wanted = [before[16:][thread // block == each].sum() for each in range(blocks)]
    np.testing.assert_array_equal(x[:blocks], wanted)
    np.testing.assert_array_equal(x[16:], before[16:])


@pytest.mark.parametrize("assume_varying", [False, True])
@pytest.mark.parametrize("block", [32, 72])
def test_lanes_that_wait_in_a_loop_around_another_one_go_on(block, assume_varying):
    module = compiled(NESTED, assume_varying=assume_varying)
    assert len(segments_of(text_of(module, "nested", (block, 1, 1)))) == 3
    n = 1000
    x = np.random.default_rng(6).integers(0, n, n, np.uint32)
    y = np.zeros(n, np.uint32)
    run(module, "nested", 2, block, x, y, n, 0)
    wanted = np.zeros(n, np.uint32)
    for thread in range(2 * block):
        total = 0
        for outer in range(thread, n, 2 * block):
            for inner in range(thread, int(x[outer]), 2 * block):
                total = (3 * total + int(x[inner])) % 2**32
            wanted[outer] = total
    np.testing.assert_array_equal(y, wanted)


def test_loops_that_do_not_stride_over_the_grid_are_not_stopped_at(bench):
    assert not segments_of(text_of(bench, "matmul_naive", (32, 8, 1)))


def test_kernels_whose_barriers_count_have_no_segments():
    module = corpus("waiting_sm75")
    for name in module.kernels:
        text = text_of(module, name, (64, 1, 1))
        assert ("@warp(" in text) != bool(segments_of(text))


@pytest.mark.parametrize(("name", "most"), [("scan", 320), ("matmul16", 192), ("block_sum", 192)])
def test_the_frames_of_a_block_leave_room_in_the_first_cache(bench, name, most):
    kernel = bench.kernels[name]
    assert kernel.text(kernel.variant(kernels.BLOCKS[name])).frame_bytes <= most


def test_registers_share_places_in_a_frame_unless_they_live_together():
    sizes = {"a": [("a", 128)], "b": [("b", 128)], "c": [("c", 4), ("c.index", 4)]}
    places, end = lay_out(sizes, [["a", "c"], ["b", "c"]], 0)
    assert places["a"] == places["b"] == 0
    assert sorted((places["c"], places["c.index"])) == [128, 132]
    assert end == 136
    apart, end = lay_out(sizes, [["a", "b", "c"]], 4)
    assert sorted(apart[each] for each in "ab") == [64, 192]
    assert end == 320
    assert all(4 <= apart[each] < 64 or apart[each] >= 320 for each in ("c", "c.index"))


# Warps wait at two barriers at once: even warps at one, odd warps at the other. Behind each barrier
# the other warps see what a warp wrote before it.
APART = """
.version 7.5
.target sm_75
.address_size 64
.visible .entry apart(.param .u64 out, .param .u32 n)
{
  .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<4>;
  .shared .align 4 .b8 seen[1024];
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r6, %tid.y;
  mad.lo.u32 %r2, %r6, 32, %r2;
  shl.b32 %r3, %r2, 2;
  mov.u32 %r4, seen;
  add.u32 %r5, %r4, %r3;
  mov.u32 %r6, DECIDES;
  and.b32 %r6, %r6, 1;
  mov.u32 %r7, 0;
$round:
  xor.b32 %r8, %r3, 128;
  add.u32 %r8, %r4, %r8;
  setp.ne.u32 %p1, %r6, 0;
  add.u32 %r9, %r2, %r7;
  st.shared.u32 [%r5], %r9;
  @%p1 bra $odd;
  bar.sync 0;
  ld.shared.u32 %r10, [%r8];
  bra $behind;
$odd:
  bar.sync 0;
  ld.shared.u32 %r10, [%r8];
  mul.lo.u32 %r10, %r10, 3;
$behind:
  bar.sync 0;
  add.u32 %r7, %r7, %r10;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra $round;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r7;
  ret;
}
"""


def apart_as_it_should_be(n, odd):
    thread = np.arange(128, dtype=np.uint32)
    total = np.zeros(128, np.uint32)
    for _ in range(n):
        seen = (thread + total)[thread ^ 32]
        total += np.where(odd(thread >> 5), 3 * seen, seen)
    return total


def asks(text):
    """The segments that ask each warp whether it waits there."""
    parts = re.split(r"define internal i64 @segment\.(\d+)\(", text)[1:]
    return {
        int(code) for code, part in zip(parts[::2], parts[1::2], strict=True) if "%is.here" in part
    }


@pytest.mark.parametrize(
    ("decides", "odd", "asking"),
    [("%ctaid.x", lambda warp: 0 * warp, set()), ("%tid.y", lambda warp: warp % 2, {1, 2, 3})],
)
def test_warps_that_may_wait_at_two_barriers_are_asked_at_which(decides, odd, asking):
    module = compiled(APART.replace("DECIDES", decides))
    assert asks(text_of(module, "apart", (32, 4, 1))) == asking
    out = np.zeros(128, np.uint32)
    run(module, "apart", 1, (32, 4), out, 5)
    np.testing.assert_array_equal(out, apart_as_it_should_be(5, odd))


def test_nobody_asked_where_somebody_should_be_shows(monkeypatch):
    monkeypatch.setattr(parallel_regions, "is_together", lambda *_: True)
    module = compile_module(parse(APART.replace("DECIDES", "%tid.y").replace("apart", "planted")))
    out = np.zeros(128, np.uint32)
    run(module, "planted", 1, (32, 4), out, 5)
    assert (out != apart_as_it_should_be(5, lambda warp: warp % 2)).any()


@pytest.mark.parametrize(
    ("name", "asking"),
    [
        ("scan", set()),
        ("matmul16", set()),
        ("transpose", set()),
        ("nbody", set()),
        # Loops in which warps keep step, and which warps may leave at any time.
        ("histogram", {3}),
        ("grid_stride", {1, 2}),
        ("block_sum", {10}),
    ],
)
def test_only_where_warps_keep_step_they_are_asked_where_they_wait(bench, name, asking):
    assert asks(text_of(bench, name, kernels.BLOCKS[name])) == asking


@pytest.mark.parametrize(
    ("wait", "is_sure"),
    [
        ("", True),
        ("setp.eq.u32 %p1, %r4, 0;\n@%p1 bra $out;", True),
        ("setp.eq.u32 %p1, %r1, 0;\n@%p1 bra $out;", False),
        ("@%p2 mov.u32 %r4, %r1;\nsetp.eq.u32 %p1, %r4, 9;\n@%p1 bra $out;", False),
        (
            "setp.eq.u32 %p2, %r2, 9;\n@%p2 mov.u32 %r4, 1;\n"
            "setp.eq.u32 %p1, %r4, 9;\n@%p1 bra $out;",
            True,
        ),
        ("mov.b64 {%r5, %r6}, %rd1;\nsetp.eq.u32 %p1, %r5, 9;\n@%p1 bra $out;", True),
        ("mov.b64 %rd2, {%r2, %r1};\nsetp.eq.u64 %p1, %rd2, 9;\n@%p1 bra $out;", False),
        ("ld.shared.u32 %r5, [seen];\nsetp.eq.u32 %p1, %r5, 9;\n@%p1 bra $out;", False),
        ("$a: add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, %r1;\n@%p1 bra $a;", True),
        (
            "$a: add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, %r1;\n@%p1 bra $a;\n"
            "setp.eq.u32 %p1, %r5, 9;\n@%p1 bra $out;",
            False,
        ),
    ],
)  # fmt: skip
def test_a_barrier_is_everyones_where_only_what_all_warps_share_decides(wait, is_sure):
    text = f"""
.version 7.5
.target sm_75
.address_size 64
.visible .entry waits(.param .u64 out)
{{
  .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  .shared .align 4 .b8 seen[4];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.y;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r4, %r2, 5, 4;
{wait}
  bar.sync 0;
$out:
  ret;
}}
"""
    module = compiled(text)
    assert asks(text_of(module, "waits", (32, 2, 1))) == (set() if is_sure else {1})
