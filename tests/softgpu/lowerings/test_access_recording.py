"""A recording holds a launch's accesses: byte by byte, with lines, in both lowerings."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.lowering.recorded_launch import record
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.access_marks import Marks
from cudasync.softgpu.interface.access_recording import Recording, Touch
from cudasync.softgpu.interface.launch import OutcomeKind

LOWERINGS = {"jit": jit.compile_module, "oracle": oracle.compile_module}
# The first line of the body, counted from the start of the text.
BODY = kernel("BODY", parameters="PARAMETERS").splitlines().index("BODY") + 1


@pytest.fixture(params=LOWERINGS)
def compile_module(request):
    return LOWERINGS[request.param]


def happened(compile_module, body, *, count=1, block=(1,), grid=(1,), size=256, before=""):
    """The recorded accesses of a body to arrays with their addresses in %d0, %d1, ...

    Lines count from the body's first line as 1. %r0 is a thread's number in the grid, and %d8 is
    this number in 64 bits.
    """
    parameters = ", ".join(f".param .u64 p{index}" for index in range(count))
    begin = " ".join(f"ld.param.u64 %d{index}, [p{index}];" for index in range(count))
    begin += " mov.u32 %r0, %tid.x; mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ntid.x;"
    begin += " mad.lo.u32 %r0, %r7, %r8, %r0; cvt.u64.u32 %d8, %r0;"
    text = kernel(f"{begin}\n{body}\nret;", parameters=parameters, before=before)
    module = compile_module(parse(text), record=True)
    arrays = [bare_launch.aligned(np.zeros(size, np.uint8)) for _ in range(count)]
    found, variables = record(module, "k", arrays, grid=grid, block=block)
    return [
        (each.read, each.written, each.read_first, {k: v - BODY for k, v in each.lines.items()})
        for each in (*found, *variables)
    ]


R, W, F = Touch.READ, Touch.WRITTEN, Touch.READ_FIRST


def test_a_load_reads_a_store_writes_and_an_atomic_does_both(compile_module):
    body = """ld.global.b32 %r1, [%d0+8];
        st.global.b16 [%d1+2], %r1;
        red.global.add.u32 [%d2+4], 1;"""
    loaded, stored, added, left = happened(compile_module, body, count=4)
    assert loaded == ([(8, 12)], [], [(8, 12)], {R: 1, F: 1})
    assert stored == ([], [(2, 4)], [], {W: 2})
    assert added == ([(4, 8)], [(4, 8)], [(4, 8)], {R: 3, W: 3, F: 3})
    assert left == ([], [], [], {})


def test_what_a_launch_wrote_before_is_not_read_first(compile_module):
    body = """st.global.b32 [%d0+8], 1;
        ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d0];"""
    (found,) = happened(compile_module, body)
    assert found == ([(0, 16)], [(8, 12)], [(0, 8), (12, 16)], {W: 1, R: 2, F: 2})


@pytest.mark.parametrize(
    ("address", "ranges"),
    [
        ("mad.wide.u32 %d5, %r0, 4, %d0;", [(0, 240)]),
        ("mad.wide.s32 %d5, %r0, -4, %d0; add.s64 %d5, %d5, 236;", [(0, 240)]),
        ("mov.b64 %d5, %d0;", [(0, 4)]),
        ("and.b32 %r1, %r0, 3; mad.wide.u32 %d5, %r1, 16, %d0;",
         [(0, 4), (16, 20), (32, 36), (48, 52)]),
        ("mul.lo.u32 %r1, %r0, %r0; and.b32 %r1, %r1, 7; mad.wide.u32 %d5, %r1, 8, %d0;",
         [(0, 4), (8, 12), (32, 36)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("what", ["load", "store"])
def test_every_lane_is_written_down_whatever_the_shape_of_its_address(
    compile_module, address, ranges, what
):
    """Lanes ascending, descending, at one place, and apart; in whole warps and a partial warp."""
    access = "ld.global.b32 %r2, [%d5];" if what == "load" else "st.global.b32 [%d5], 7;"
    (found,) = happened(compile_module, f"{address} {access}", block=(30,), grid=(2,))
    assert found[0 if what == "load" else 1] == ranges


def test_lanes_that_are_masked_off_do_nothing(compile_module):
    body = """mad.wide.u32 %d5, %r0, 4, %d0;
        setp.lt.u32 %p1, %r0, 20; setp.gt.u32 %p2, %r0, 9; and.pred %p1, %p1, %p2;
        @%p1 ld.global.b32 %r1, [%d5];
        @!%p1 bra behind;
        st.global.b32 [%d5+4], 7;
        behind:
        setp.gt.u32 %p1, %r0, 999;
        @%p1 st.global.b32 [%d0], 1;
        @%p1 red.global.add.u32 [%d0], 1;"""
    (found,) = happened(compile_module, body, block=(40,))
    assert found[:2] == ([(40, 80)], [(44, 84)])


def test_generic_addresses_are_recorded_and_the_blocks_own_memory_is_not(compile_module):
    body = """.local .b64 box; .shared .b64 crate;
        st.b32 [%d0+16], 1;
        st.local.b64 [box], %d0; st.shared.b64 [crate], %d0;
        mov.b64 %d5, crate; cvta.shared.u64 %d5, %d5; ld.b64 %d6, [%d5];
        ld.b32 %r1, [%d6];"""
    (found,) = happened(compile_module, body)
    assert found[:2] == ([(0, 4)], [(16, 20)])


def test_variables_of_the_module_are_watched_like_arguments(compile_module):
    before = ".global .b32 count; .const .b32 limit = 7;"
    body = "ld.const.b32 %r1, [limit]; atom.global.inc.u32 %r2, [count], %r1;"
    _, count, limit = happened(compile_module, body, before=before)
    assert count[:2] == ([(0, 4)], [(0, 4)])
    assert limit[:2] == ([(0, 4)], [])


def test_device_functions_are_recorded(compile_module):
    before = """.func f(.param .b64 x)
        { .reg .b64 %d; ld.param.b64 %d, [x]; st.global.b32 [%d+12], 1; ret; }"""
    body = "{ .param .b64 a; st.param.b64 [a], %d0; call f, (a); }"
    (found,) = happened(compile_module, body, before=before)
    assert found[:2] == ([], [(12, 16)])


def test_an_access_across_the_edge_of_what_is_watched_counts_inside(compile_module):
    text = kernel("ld.param.u64 %d0, [x]; st.global.v2.b64 [%d0+16], {%d0, %d0}; ret;")
    module = compile_module(parse(text), record=True)
    memory = bare_launch.aligned(np.zeros(64, np.uint8))
    start = memory.ctypes.data
    recording = Recording([(start + 24, start + 40), (start + 20, start + 24), (start, start)])
    outcome = bare_launch.run(
        module, "k", args=[memory], grid=(1,), block=(1,), recording=recording
    )
    assert outcome.kind is OutcomeKind.DONE
    assert recording.ranges == [(start + 20, start + 24), (start + 24, start + 40)]
    assert recording.touched(0, W) == [(start + 20, start + 24)]
    assert recording.touched(1, W) == [(start + 24, start + 32)]
    assert recording.first(1, W).address == start + 16
    assert recording.first(1, R) is None


def test_a_launch_that_nobody_records_runs_the_same_code(compile_module):
    text = kernel("ld.param.u64 %d0, [x]; st.global.b32 [%d0], 5; ret;")
    module = compile_module(parse(text), record=True)
    memory = bare_launch.aligned(np.zeros(64, np.uint8))
    assert (
        bare_launch.run(module, "k", args=[memory], grid=(1,), block=(1,)).kind is OutcomeKind.DONE
    )
    assert memory[0] == 5


def test_code_that_is_not_for_recording_has_no_trace_of_it():
    text = kernel("ld.param.u64 %d0, [x]; atom.global.add.u32 %r1, [%d0], 1; ret;")
    for record_it in (False, True):
        fast = jit.compile_module(parse(text), record=record_it).kernels["k"]
        ir = fast.text(fast.variant((32, 1, 1)))
        assert ("note" in ir.text) is record_it
        assert any("note" in name for name in ir.functions) is record_it
        plain = oracle.compile_module(parse(text), record=record_it).kernels["k"]
        assert ("note" in plain.code.text) is record_it


def test_ranges_that_overlap_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        Recording([(0, 10), (8, 20)])


@pytest.mark.parametrize("size", [1, 1023, 1 << 16, (3 << 20) + 17])
def test_runs_are_those_of_the_marks_one_by_one(size):
    draw = np.random.default_rng(size)
    for count in (0, 1, 2, 50, 3000):
        marks = Marks(4096, 4096 + size)
        bounds = np.unique([0, *draw.integers(0, size, count), size])
        lengths = np.diff(bounds)
        # Zeros lie between most runs, or between few.
        chosen = draw.integers(0, 32, len(lengths)) * draw.integers(0, 2 + count % 3, len(lengths))
        marked = np.repeat(np.minimum(chosen, 31), lengths).astype(np.uint8)
        for low, high, mark in zip(bounds, bounds[1:], chosen, strict=False):
            marks.fill(4096 + low, 4096 + high, min(mark, 31))
        found = marks.runs()
        assert found.marks.all()
        again = np.zeros(size, np.uint8)
        for start, end, mark in found:
            assert not again[start - 4096 : end - 4096].any()
            again[start - 4096 : end - 4096] = mark
        assert np.array_equal(again, marked)
