"""The results of the analysis: kernels that need no gather, and registers that stay scalar."""

from __future__ import annotations

import re

import pytest
from helpers.lowering.jit_launch import CORPUS

from cudasync.ptx import parse
from cudasync.softgpu.jit.analysis.abstract_interpretation import Probe
from cudasync.softgpu.jit.analysis.divergence import analyse
from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
from cudasync.softgpu.jit.analysis.suspension_points import find_stops, held_nodes
from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
from cudasync.softgpu.jit.opcode_table import EMITTERS
from cudasync.softgpu.jit.pipeline import lower
from cudasync.softgpu.jit.transforms.program import prepare
from cudasync.softgpu.jit.transforms.suspending_functions import is_barrier
from cudasync.softgpu.jit.vector_ir.uniformity import UNIFORM, VARYING, Kind, affine, join, wide

USUAL = Variant(lanes=32, is_rowwise=True, is_whole=True)
TILE = Variant(lanes=16, is_rowwise=True, is_whole=True)
HEAD = """\
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 target)
{
    .reg .u32 %t, %n, %a, %b, %c;
    .reg .u64 %rd, %rd_base;
    .reg .pred %p, %q;
    ld.param.u64 %rd_base, [target];
    mov.u32 %t, %tid.x;
    mov.u32 %n, %ntid.x;
"""


def shapes_of(body):
    """The shape of every register of a kernel."""
    module = parse(HEAD + body + "\n}\n")
    program = prepare(module, module.kernels[0])
    flow = Flow(program.kernel, is_barrier)
    stops = find_stops(flow)

    def probe(shapes):
        return Probe(program, program.kernel, USUAL, Settings(), shapes)

    held = held_nodes(flow, stops, frozenset())
    return analyse(flow, held, EMITTERS, probe, assume_varying=False).shapes


def gathers(name, variant=USUAL, target="sm75"):
    """The number of vector gathers, and of lane-by-lane loads and stores, in a kernel's own
    code."""
    module = parse((CORPUS / f"kernels_{target}.ptx").read_text())
    kernel = next(kernel for kernel in module.kernels if kernel.name == name)
    text = lower(prepare(module, kernel), variant, Settings()).text
    lane_by_lane = r"llvm\.masked\.gather|cudasync\.(gather|scatter|load\.each|store\.each)"
    return len(re.findall(f"call .*@({lane_by_lane})", text))


@pytest.mark.parametrize("target", ["sm75", "sm120"])
@pytest.mark.parametrize("name", ["axpy", "stencil", "mandelbrot", "scan", "vectors", "doubles"])
def test_kernels_that_read_by_row_gather_nothing(name, target):
    assert gathers(name, target=target) == 0


def test_a_tile_of_16_gathers_nothing_in_warps_of_16():
    assert gathers("matmul", TILE) == 0


def test_a_plain_grid_stride_loop_keeps_its_index_affine():
    shapes = shapes_of("""
loop:
    setp.ge.s32 %p, %t, 1000;
    @%p bra done;
    mul.wide.s32 %rd, %t, 4;
    add.s64 %rd, %rd_base, %rd;
    st.global.u32 [%rd], %n;
    add.s32 %t, %t, %n;
    bra loop;
done:
    ret;""")
    assert shapes["%t"] == affine(1, 32)
    addresses = {shape for name, shape in shapes.items() if name.startswith("%rd.")}
    assert addresses | {shapes["%rd"]} == {wide(affine(1, 32), scale=4, is_signed=True)}


def test_what_lanes_need_after_leaving_a_loop_varies():
    shapes = shapes_of("""
    mov.u32 %a, 0;
loop:
    setp.ge.u32 %p, %a, %t;
    @%p bra done;
    add.u32 %a, %a, 1;
    bra loop;
done:
    st.global.u32 [%rd_base], %a;""")
    assert shapes["%a"] == VARYING


def test_what_one_side_of_a_branch_sets_varies_behind_it_and_only_then():
    shapes = shapes_of("""
    setp.lt.u32 %p, %t, 7;
    mov.u32 %a, 1;
    @%p bra other;
    mov.u32 %a, 2;
    add.u32 %b, %n, 1;
    add.u32 %c, %b, 1;
    st.global.u32 [%rd_base], %c;
other:
    st.global.u32 [%rd_base+4], %a;""")
    assert shapes["%a"] == VARYING
    assert shapes["%b"] == shapes["%c"] == UNIFORM


def test_registers_used_again_have_a_shape_for_each_value():
    shapes = shapes_of("""
    mov.u32 %a, %n;
    mul.wide.u32 %rd, %a, 4;
    mov.u32 %a, %t;
    mul.wide.u32 %rd, %a, 4;
    add.u64 %rd, %rd_base, %rd;
    st.global.u32 [%rd], %a;""")
    assert {shapes["%a"], shapes["%a.1"]} == {UNIFORM, affine(1, 32)}


def test_shapes_join_to_what_holds_of_both():
    one = wide(affine(1, 32), scale=4, is_signed=True)
    two = wide(affine(2, 32), scale=4, is_signed=True)
    assert join(one, one) == one
    assert join(one, two).kind is Kind.WIDE
    assert join(one, two).stride == 0
    assert join(one, wide(affine(1, 32), scale=8, is_signed=True)) == VARYING
    assert join(UNIFORM, affine(1, 32)) == VARYING


def test_a_stride_that_vanishes_is_uniform():
    assert affine(1 << 32, 32) == UNIFORM
    assert affine((1 << 32) - 1, 32).stride == -1
