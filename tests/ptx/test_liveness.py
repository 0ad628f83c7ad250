"""The registers that instructions use and define, and the places where registers are live."""

from __future__ import annotations

import pytest
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.ptx.cfg import ControlFlow
from cudasync.ptx.liveness import defs, liveness, uses


def names(registers):
    return sorted({register.name for register in registers})


@pytest.mark.parametrize(
    ("text", "used", "defined"),
    [
        ("add.s32 %r1, %r2, %r3;", ["%r2", "%r3"], ["%r1"]),
        ("@%p1 add.s32 %r1, %r2, 1;", ["%p1", "%r1", "%r2"], ["%r1"]),
        ("st.global.v2.b32 [%d1+4], {%r1, %r2};", ["%d1", "%r1", "%r2"], []),
        ("ld.global.v2.b32 {%r1, _}, [%d1];", ["%d1"], ["%r1"]),
        ("setp.lt.and.s32 %p1|%p2, %r1, 0, !%p3;", ["%p3", "%r1"], ["%p1", "%p2"]),
        ("atom.global.add.u32 _, [%d1], %r1;", ["%d1", "%r1"], []),
        ("red.global.add.u32 [%d1], %r1;", ["%d1", "%r1"], []),
        ("bar.sync %r1, 64;", ["%r1"], []),
        ("bar.red.popc.u32 %r1, 0, %p1;", ["%p1"], ["%r1"]),
        ("mbarrier.init.shared.b64 [%d1], %r1;", ["%d1", "%r1"], []),
        ("mbarrier.arrive.shared.b64 %d2, [%d1];", ["%d1"], ["%d2"]),
        ("cp.async.ca.shared.global [%d1], [%d2], 4;", ["%d1", "%d2"], []),
        ("call (%r1), %d1, (%r2), p;", ["%d1", "%r2"], ["%r1"]),
        ("nanosleep.u32 %r1;", ["%r1"], []),
        ("mov.b64 {%r1, %r2}, %d1;", ["%d1"], ["%r1", "%r2"]),
        ("ret;", [], []),
    ],
)
def test_an_instruction_uses_and_defines(text, used, defined):
    before = "p: .callprototype (.param .b32 _) _ (.param .b32 _);" if "call" in text else ""
    (instruction,) = parse(kernel(before + text)).function("k").body
    assert names(uses(instruction)) == used
    assert names(defs(instruction)) == defined


def live(body):
    return liveness(ControlFlow(parse(kernel(body)).function("k")))


def test_a_register_is_live_from_its_definition_to_its_last_use():
    found = live("mov.b32 %r1, 1; mov.b32 %r2, %r1; add.s32 %r3, %r2, %r2; ret;")
    assert [names(found.before(index)) for index in range(4)] == [[], ["%r1"], ["%r2"], []]


def test_a_loop_keeps_its_counter_live_around_the_back_edge():
    found = live("mov.b32 %r1, 9; top: add.s32 %r1, %r1, %r2; @%p1 bra top; ret;")
    assert names(found.live_in(0)) == ["%p1", "%r2"]
    assert names(found.live_in(1)) == ["%p1", "%r1", "%r2"]
    assert names(found.live_out(1)) == ["%p1", "%r1", "%r2"]


def test_a_guarded_definition_does_not_end_the_life_of_the_old_value():
    found = live("mov.b32 %r1, 1; @%p1 mov.b32 %r1, 2; st.global.b32 [%d1], %r1; ret;")
    assert "%r1" in names(found.before(1))
    plain = live("mov.b32 %r1, 1; mov.b32 %r1, 2; st.global.b32 [%d1], %r1; ret;")
    assert "%r1" not in names(plain.before(1))
