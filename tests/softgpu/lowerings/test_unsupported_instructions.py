"""Instructions for clusters, bulk copies, tensor memory and the like are NOT_SUPPORTED."""

from __future__ import annotations

import re

import pytest

from cudasync.driver import Device, Module
from cudasync.errors import CudaError, PtxError
from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.semantics.unsupported_instructions import NotSupportedError

HEAD = """\
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b32 %r<8>;
    .reg .f32 %f<8>;
    .reg .u64 %rd<8>;
    .reg .b128 %q<2>;
    .reg .pred %p;
    .shared .align 128 .b8 tile[512];
"""
LINE = HEAD.count("\n") + 1
STATEMENTS = """
bulk copies: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0], 64, [%r1];
bulk copies: cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r0], 64;
bulk copies: cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1, %r2}], [%r3];
bulk copies: cp.async.bulk.commit_group;
bulk copies: cp.async.bulk.wait_group.read 0;
bulk copies: cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r0], 64;
bulk copies: prefetch.tensormap [%rd0];
clusters: mapa.shared::cluster.u32 %r0, %r1, 1;
clusters: getctarank.shared::cluster.u32 %r0, %r1;
clusters: barrier.cluster.arrive.aligned;
clusters: ld.shared::cluster.b32 %r0, [%r1];
clusters: mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r0];
clusters: red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r0], %r1, [%r2];
matrix products of warpgroups: wgmma.fence.sync.aligned;
matrix products of warpgroups: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd1, %p, 1, 1, 0, 0;
tensor memory: tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;
sparse matrices: mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2, %r3}, {%f0, %f1, %f2, %f3}, %r4, 0;
stack allocation: alloca.u64 %rd0, %rd1, 16;
stack allocation: stacksave.u64 %rd0;
video instructions: vavrg4.u32.u32.u32 %r0, %r1, %r2, %r3;
stochastic rounding: cvt.rs.f16x2.f32 %r0, %f0, %f1, %r1;
integers of 2 and 4 bits: cvt.pack.sat.u4.s32.b32 %r0, %r1, %r2, %r3;
moves of whole vectors: mov.v2.b32 {%r0, %r1}, {%r2, %r3};
moves of whole vectors: mov.v4.b32 {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7};
atomics on 128 bits: atom.global.exch.b128 %q0, [%rd0], %q1;
multicast memory: multimem.ld_reduce.relaxed.gpu.global.add.f32 %f0, [%rd0];
""".strip().splitlines()  # noqa: E501


def text(statement):
    return f"{HEAD}{statement}\n    ret;\n}}\n"


@pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
@pytest.mark.parametrize("line", STATEMENTS, ids=[each.split(": ")[1][:40] for each in STATEMENTS])
def test_the_refusal_names_what_is_missing_the_instruction_and_the_line(line, room):
    missing, _, statement = line.partition(": ")
    compiled = room.compile_module(parse(text(statement), "kernels.ptx"))
    assert not compiled.kernels
    refusal = compiled.refused["k"]
    assert isinstance(refusal, NotSupportedError)
    assert missing in refusal.message
    assert statement.split()[0].rstrip(";") in refusal.message
    assert (refusal.file, refusal.line, refusal.instruction) == ("kernels.ptx", LINE, statement)


def test_the_driver_says_not_supported_and_where():
    if not Device(0).is_software:
        pytest.skip("a real device may support it")
    module = Module.from_ptx(text("mapa.shared::cluster.u32 %r0, %r1, 1;"))
    with pytest.raises(PtxError, match=r"mapa\.shared::cluster\.u32 is not supported") as caught:
        module.kernel("k")
    assert caught.value.line == LINE
    refusal = caught.value.__cause__
    assert isinstance(refusal, CudaError)
    assert refusal.name == "CUDA_ERROR_NOT_SUPPORTED"


MISFITS = """
a matrix of .f16 needs 4 registers, not 2: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2, %r3}, {%f0, %f1, %f2, %f3};
%rd0 is of type .u64: mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r0, %r1}, {%rd0}, {%r2}, {%r3, %r4};
%p is of type .pred: wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {%p}, [%rd0];
the operand needs 2 registers, not 1: ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [tile];
not implemented: mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};
not implemented: mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};
not implemented: wmma.load.b.sync.aligned.row.m8n8k32.global.s4 {%r0}, [%rd0];
not implemented: cp.async.cg.shared.global [tile], [%rd0], 8;
not implemented: cp.async.ca.shared.global [tile], [%rd0], 12;
not implemented: ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {%r0}, [tile];
""".strip().splitlines()  # noqa: E501


@pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
@pytest.mark.parametrize("line", MISFITS, ids=[each.split(": ")[1][:40] for each in MISFITS])
def test_operands_and_forms_that_do_not_fit_are_refused_by_line(line, room):
    complaint, _, statement = line.partition(": ")
    with pytest.raises(PtxError, match=re.escape(complaint)) as caught:
        room.compile_module(parse(text(statement)))
    assert not isinstance(caught.value, NotSupportedError)
    assert (caught.value.line, caught.value.instruction) == (LINE, statement)
