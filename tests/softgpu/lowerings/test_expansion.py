"""Expanded instructions keep their guard and place, and must have only known modifiers."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.ptx.liveness import defs
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.expansion import expand
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind
from cudasync.softgpu.jit.transforms.program import prepare

both = pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
POINTER = "ld.param.u64 %d0, [x];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %d0, %r0, 4, %d0;\n"


def body_of(text: str):
    return expand(parse(kernel(text))).function("k").body


def result(room, text: str, begin: int, threads: int = 4) -> list[int]:
    memory = bare_launch.aligned(np.full(threads, begin, np.uint32))
    module = room.compile_module(parse(kernel(POINTER + text)))
    outcome = bare_launch.run(module, "k", grid=(1,), block=(threads,), args=[memory])
    assert outcome.fault is None
    return memory.tolist()


def test_parts_keep_line_and_text_of_the_whole():
    whole = parse(kernel("add.f16x2 %r1, %r2, %r3;")).function("k").body[0]
    parts = body_of("add.f16x2 %r1, %r2, %r3;")
    assert len(parts) > 1
    assert {(each.span, each.text) for each in parts} == {(whole.span, whole.text)}


def test_only_what_writes_the_programs_registers_is_guarded():
    parts = body_of("@%p1 fma.rn.f16x2 %r1, %r2, %r3, %r1;")
    assert [defs(each)[0].name for each in parts if each.guard is not None] == ["%r1"]


def test_a_function_without_such_instructions_is_left_alone():
    module = parse(kernel("popc.b32 %r1, %r2;"))
    assert expand(module).function("k") is module.function("k")


def test_a_modifier_that_no_rule_knows_is_not_dropped():
    with pytest.raises(PtxError, match=r"min with \.relu is not implemented"):
        jit.compile_module(parse(kernel("min.relu.u16x2 %r1, %r2, %r3;")))


@both
def test_a_guard_that_the_instruction_writes_holds_for_both_results(room):
    """Initially p is 1 and q is 0. Where p was set, both halves of 1.0 are less than 2.0."""
    text = """
        setp.lt.u32 %p1, %r0, 2;
        @%p1 setp.lt.f16x2 %p1|%p2, 0x3c003c00, 0x40004000;
        @%p1 setp.gt.f16x2 %p1|%p3, 0x3c003c00, 0x40004000;
        selp.u32 %r1, 1, 0, %p2;
        selp.u32 %r2, 2, 0, %p3;
        selp.u32 %r3, 4, 0, %p1;
        or.b32 %r1, %r1, %r2;
        or.b32 %r1, %r1, %r3;
        st.global.u32 [%d0], %r1;
        ret;"""
    assert result(room, text, 7) == [1, 1, 0, 0]


@both
def test_a_branch_back_to_an_instruction_taken_apart_meets_its_first_part(room):
    text = """
        mov.u32 %r1, 0;
        mov.u32 %r2, 0;
    again:
        add.u16x2 %r1, %r1, 0x00010002;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, 5;
        @%p1 bra again;
        st.global.u32 [%d0], %r1;
        ret;"""
    assert result(room, text, 7) == [0x0005000A] * 4


@both
def test_an_atomic_of_a_pair_leaves_out_threads_whose_guard_is_false(room):
    text = """
        setp.lt.u32 %p1, %r0, 2;
        @%p1 red.global.add.noftz.f16x2 [%d0], 0x3c003c00;
        ret;"""
    assert result(room, text, 0) == [0x3C003C00, 0x3C003C00, 0, 0]


CALLEE = """
.func (.param .b32 out) target(.param .b32 in)
{ .reg .b32 %r; ld.param.b32 %r, [in]; st.param.b32 [out], %r; ret; }
.global .u64 addresses[2] = {target, 0};
"""
CALL = """
    .param .b32 in;
    .param .b32 out;
    one: .callprototype (.param .b32 _) _ (.param .b32 _);
    st.param.b32 [in], %r0;
    call (out), %d1, (in), one;
    ld.param.b32 %r1, [out];
    st.global.u32 [%d0], %r1;
    ret;"""


@both
@pytest.mark.parametrize(
    "source", ["mov.u64 %d1, 0;", "add.u64 %d1, %d0, 0;", "ld.global.u64 %d1, [addresses+8];"]
)
def test_a_call_of_what_is_no_function_is_an_illegal_access(room, source):
    memory = bare_launch.aligned(np.zeros(4, np.uint32))
    text = kernel(POINTER + source + CALL, before=CALLEE)
    line = text[: text.index("call (out)")].count("\n") + 1
    outcome = bare_launch.run(
        room.compile_module(parse(text)), "k", grid=(1,), block=(4,), args=[memory]
    )
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.ILLEGAL_ADDRESS
    assert (outcome.fault.line, memory.tolist()) == (line, [0] * 4)


@both
def test_reading_through_the_address_of_a_function_is_an_illegal_access(room):
    text = kernel("mov.u64 %d1, target;\nld.u32 %r1, [%d1];\nret;", before=CALLEE, parameters="")
    outcome = bare_launch.run(room.compile_module(parse(text)), "k", grid=(1,), block=(1,), args=[])
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.ILLEGAL_ADDRESS


def test_a_function_with_a_barrier_is_written_out_through_every_level():
    before = """
    .func inner(.param .b32 x) { bar.sync 0; ret; }
    .func middle(.param .b32 x)
    { .param .b32 y; @%p bra END; call inner, (y); call inner, (x); END: ret; }
    .func apart(.param .b32 x) { ret; }
    """.replace("@%p", ".reg .pred %p; mov.pred %p, 1; @%p")
    text = kernel(".param .b32 z; call middle, (z); call apart, (z); ret;", before=before)
    module = parse(text)
    program = prepare(module, module.function("k"))
    opcodes = [each.opcode for each in program.kernel.body]
    assert (opcodes.count("bar"), opcodes.count("call")) == (2, 1)
    assert list(program.functions) == ["apart"]


def test_a_function_with_a_barrier_that_calls_itself_is_refused_by_name():
    before = ".func deep(.param .b32 x) { bar.sync 0; call deep, (x); ret; }"
    text = kernel(".param .b32 z; call deep, (z); ret;", before=before)
    with pytest.raises(PtxError, match="barrier in a device function"):
        jit.compile_module(parse(text))


@both
def test_a_function_that_waits_for_another_block_gets_there(room):
    """Its loop is a suspension point of the kernel, wherever the function was written."""
    before = """
    .func wait_for(.reg .b64 %flag)
    {
        .reg .pred %p;
        .reg .b32 %r;
    again:
        ld.volatile.global.u32 %r, [%flag];
        setp.eq.u32 %p, %r, 0;
        @%p bra again;
        ret;
    }
    """
    body = """
        ld.param.u64 %d0, [x];
        mov.u32 %r0, %ctaid.x;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra other;
        call wait_for, (%d0);
        ret;
    other:
        st.volatile.global.u32 [%d0], 1;
        ret;"""
    module = room.compile_module(parse(kernel(body, before=before)))
    memory = bare_launch.aligned(np.zeros(1, np.uint32))
    outcome = bare_launch.run(module, "k", grid=(2,), block=(32,), args=[memory])
    assert outcome.kind is OutcomeKind.DONE
