"""Scalars that calls pass as vectors of a warp: what is passed so, and that each lane has its own.

Each kernel runs on both lowerings, which share neither the convention nor its code.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
from cudasync.softgpu.jit.memory import argument_vectors
from cudasync.softgpu.jit.pipeline import lower
from cudasync.softgpu.jit.splitting import pieces
from cudasync.softgpu.jit.transforms import passed_values as passing
from cudasync.softgpu.jit.transforms.passed_values import passed_values
from cudasync.softgpu.jit.transforms.program import prepare

THREADS = 80
# `fold` returns from two places; lanes with an odd value return first.
FUNCTIONS = """\
.version 7.0
.target sm_80
.address_size 64
.func (.param .b32 sum, .param .b64 wide) fold(.param .b32 a, .param .b64 b, .param .b8 c)
{
    .reg .b32 %x, %y, %odd;
    .reg .b64 %w;
    .reg .pred %p;
    ld.param.u32 %x, [a];
    ld.param.u64 %w, [b];
    ld.param.u8 %y, [c];
    and.b32 %odd, %x, 1;
    setp.eq.u32 %p, %odd, 1;
    mad.lo.u32 %y, %y, 1000, %x;
    st.param.b64 [wide], %w;
    @%p bra early;
    add.u32 %y, %y, 7;
    add.u64 %w, %w, 11;
    st.param.b32 [sum], %y;
    st.param.b64 [wide], %w;
    ret;
early:
    st.param.b32 [sum], %y;
    ret;
}
.func (.reg .b32 up) more(.reg .b32 of)
{
    add.u32 up, of, 5;
    ret;
}
.func (.param .b32 first) pair(.param .align 8 .b8 both[8])
{
    .reg .b32 %x, %y;
    ld.param.v2.b32 {%x, %y}, [both];
    sub.u32 %x, %x, %y;
    st.param.b32 [first], %x;
    ret;
}
.visible .entry test(.param .u64 target)
{
    .reg .b32 %t, %n, %r, %r2, %bit;
    .reg .b64 %at, %out, %wide;
    .reg .pred %p, %q;
    .param .b32 a;
    .param .b64 b;
    .param .b8 c;
    .param .b32 r;
    .param .b64 s;
    .param .align 8 .b8 two[8];
    ld.param.u64 %out, [target];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %at, %t, 8, %out;
    cvt.u64.u32 %wide, %t;
    mov.u32 %r, 0;
    mov.u32 %n, %t;
    and.b32 %bit, %t, 3;
    setp.eq.u32 %q, %bit, 1;
"""
CALL = """\
    st.param.b32 [a], %t;
    st.param.b64 [b], %wide;
    st.param.b8 [c], %bit;
    call (r, s), fold, (a, b, c);
    ld.param.b32 %r, [r];
    ld.param.b64 %wide, [s];
"""
BODIES = {
    "a call": CALL,
    "a call under a guard": CALL.replace("    ", "    @%q ").replace("%t;", "%n;"),
    "a call in divergent code": f"    @%q bra out;\n{CALL}out:\n",
    "a loop of calls, with other trips in each lane": f"""
again:
{CALL}
    sub.u32 %bit, %bit, 1;
    setp.ge.s32 %p, %bit, 0;
    @%p bra again;
""",
    "registers": "    call (%r), more, (%t);\n    @%q call (%r), more, (%r);\n",
    "both sides of a branch store one argument": """
    st.param.b64 [b], %wide;
    @%q bra other;
    st.param.b32 [a], %t;
    bra join;
other:
    st.param.b32 [a], %bit;
join:
    st.param.b8 [c], %bit;
    call (r, s), fold, (a, b, c);
    ld.param.b32 %r, [r];
    ld.param.b64 %wide, [s];
""",
    "one argument of two calls": f"""
{CALL}
    call (r, s), fold, (a, b, c);
    ld.param.b32 %r2, [r];
    add.u32 %r, %r, %r2;
""",
    "a structure": """
    st.param.v2.b32 [two], {%t, %bit};
    call (r), pair, (two);
    ld.param.b32 %r, [r];
""",
}
END = """
    add.u64 %wide, %wide, 3;
    shl.b64 %wide, %wide, 32;
    cvt.u64.u32 %at, %r;
    add.u64 %wide, %wide, %at;
    mad.wide.u32 %at, %t, 8, %out;
    st.global.u64 [%at], %wide;
    ret;
}
"""
ALWAYS_PASSED = {"a call", "a call under a guard", "registers"}


def module_of(body: str):
    return parse(FUNCTIONS + BODIES[body] + END)


def memory_after(compile_module, body: str) -> np.ndarray:
    target = bare_launch.aligned(np.full(THREADS, 2**64 - 1, np.uint64))
    outcome = bare_launch.run(
        compile_module(module_of(body)), "test", grid=(1,), block=(THREADS,), args=[target]
    )
    assert outcome.kind is OutcomeKind.DONE, outcome
    return target


def differs(body: str, **how) -> bool:
    fast = memory_after(partial(jit.compile_module, **how), body)
    return not np.array_equal(fast, memory_after(oracle.compile_module, body))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("how", [{}, {"assume_varying": True}, {"memcheck": False}])
def test_each_lane_has_its_own_arguments_and_results(body, how):
    assert not differs(body, **how)


@pytest.mark.parametrize("body", sorted(ALWAYS_PASSED))
def test_passed_scalars_need_no_memory_of_threads(body):
    module = module_of(body)
    program = prepare(module, module.kernels[0])
    text = lower(program, Variant(lanes=32, is_rowwise=True, is_whole=True), Settings()).text
    assert not re.search(r"call .*@(cudasync\.scatter|llvm\.masked\.gather)", text)
    assert not any(each.local for each in (program.storages[name] for name in program.functions))


@pytest.mark.parametrize(
    "body", ["both sides of a branch store one argument", "one argument of two calls"]
)
def test_an_argument_that_is_not_stored_just_before_its_call_keeps_its_memory(body):
    module = module_of(body)
    program = prepare(module, module.kernels[0])
    assert "a" not in program.storages["test"].passed
    assert "a" not in program.storages["fold"].passed


def test_a_structure_keeps_its_memory():
    module = module_of("a structure")
    found = passed_values([module.function("test"), module.function("pair")])
    assert found == {"test": {"r"}, "pair": {"first"}}


def test_a_large_function_is_not_cut_between_an_argument_and_its_call():
    function = module_of("a call").function("test")
    together = passing.kept_together(function)
    calls = [n for n, each in enumerate(function.body) if each.opcode == "call"]
    assert together == set(range(calls[0] - 2, calls[0] + 3))
    assert not pieces.split_points(function, 2) & together


# Planted bugs.


def test_results_of_lanes_that_returned_before_would_be_lost(monkeypatch):
    def whole(lowering, name, value):
        if not lowering.builder.is_silent:
            vector = lowering.builder.vector_type(value.type)
            place = argument_vectors._place(lowering, name)
            text = lowering.builder.vector(value)
            lowering.builder.emit(f"store {vector} {text}, ptr {place}, align 64")

    monkeypatch.setattr("cudasync.softgpu.jit.memory.load_store.store_argument", whole)
    assert differs("a call")


def test_arguments_of_other_lanes_would_be_lost(monkeypatch):
    monkeypatch.setattr(passing, "_around", lambda function, _: range(len(function.body)))
    assert differs("both sides of a branch store one argument")
