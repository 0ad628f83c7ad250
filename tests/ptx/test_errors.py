"""Malformed texts: each kind is refused with its place and a sentence."""

from __future__ import annotations

import pytest
from helpers.ptx_generators.kernel_frame import HEAD, kernel

from cudasync.errors import PtxError
from cudasync.ptx import parse

FIRST = ".version 6.4\n.target sm_75\n.address_size 64\n"
ENTRY = FIRST + ".entry k(.param .u64 x)\n{\n.reg .b32 %r<4>;\n.reg .pred %p;\n"

# Statements with a wrong register, and the error about that register.
MISFITS = [
    ("add.s64 %d1, %d2, %r1;", "%r1 is of type .b32, which does not fit .s64"),
    ("add.s32 %d1, %r1, %r2;", "%d1 is of type .b64, which does not fit .s32"),
    ("fma.rn.f32 %f1, %f2, %f3, %d1;", "%d1 is of type .b64, which does not fit .f32"),
    ("mov.u32 %r1, %p1;", "%p1 is of type .pred, which does not fit .u32"),
    ("and.pred %p1, %p2, %r1;", "%r1 is of type .b32, which does not fit .pred"),
    ("shl.b64 %d1, %r1, 3;", "%r1 is of type .b32, which does not fit .b64"),
    ("setp.eq.s32 %r1, %r2, 0;", "%r1 is of type .b32, which does not fit .pred"),
    ("setp.eq.s32 %p1|%p2, %d1, 0;", "%d1 is of type .b64, which does not fit .s32"),
    ("selp.b32 %r1, %h1, 0, %p1;", "%h1 is of type .b16, which does not fit .b32"),
    ("ld.global.b64 %r1, [%d1];", "%r1 is of type .b32, which does not fit .b64"),
    ("ld.global.v2.b32 {%r1, %h1}, [%d1];", "%h1 is of type .b16, which does not fit .b32"),
    ("ld.global.b32 %r1, [%f1];", "%f1 is of type .f32, which cannot hold an address"),
    ("st.global.b32 [%h1], %r1;", "%h1 is of type .b16, which cannot hold an address"),
    ("st.global.b64 [%d1], %r1;", "%r1 is of type .b32, which does not fit .b64"),
    ("st.global.u8 [%d1], %p1;", "%p1 is of type .pred, which does not fit .u8"),
    ("cvt.u64.u32 %r1, %r2;", "%r1 is of type .b32, which does not fit .u64"),
    ("cvt.u32.u64 %r1, %r2;", "%r2 is of type .b32, which does not fit .u64"),
    ("mul.wide.s32 %r1, %r2, 4;", "%r1 is of type .b32, which does not fit .b64"),
    ("shl.b32 %r1, %r2, %d1;", "%d1 is of type .b64, which does not fit .b32"),
    ("mov.u64 %d1, %tid.x;", "%tid.x is of type .u32, which does not fit .u64"),
    ("mov.b64 %d1, {%h1, %h2};", "2 elements of type .b16 do not make .b64"),
    ("mov.f32 %f1, 0;", "0 is not a number of type .f32"),
    ("setp.lt.f32 %p1, %f1, 0;", "0 is not a number of type .f32"),
    ("add.u32 %r1, %r2, 1.0;", "a float is not a number of type .u32"),
    ("st.global.u32 [%d1], 1.0;", "a float is not a number of type .u32"),
    ("atom.global.add.u32 %r1, [%d1], 1.0;", "a float is not a number of type .u32"),
    ("add.u32 %r1, %tid.x, 1;", "a source must be a register or a number"),
    ("add.u32 %r1, [%d1], 1;", "a source must be a register or a number"),
    ("add.u32 %r1, {%r1, %r2}, 1;", "a source must be a register or a number"),
    ("mov.u32 %r1, !%p1;", "a source must be a register or a number"),
    ("add.u32 5, %r1, 1;", "a result must be a register"),
    ("mov.u32 %tid.x, 1;", "a result must be a register"),
    ("add.u32 _, %r1, 1;", "a result must be a register"),
    ("ld.global.u32 _, [%d1];", "a result must be a register"),
    ("ld.global.v2.u32 %r1, [%d1];", "expected a vector of 2"),
    ("ld.global.u32 {%r1, %r2}, [%d1];", "one register expected"),
    ("st.global.v2.u32 [%d1], {%r1};", "expected a vector of 2"),
    ("ld.global.u32 %r1, %d1;", "expected an address in brackets"),
    ("atom.global.add.u32 %r1, %d1, 1;", "expected an address in brackets"),
    ("selp.u32 %r1, 1, 2, %r2;", "the last operand must be a predicate"),
]

# Statements that look like those above, but are PTX.
FITS = [
    "ld.global.u8 %r1, [%d1];", "st.global.u8 [%d1], %r1;", "ld.param.u32 %d1, [x];",
    "cvt.u16.u32 %r1, %r2;", "cvt.rn.f32.u8 %f1, %r1;", "mul.wide.s32 %d1, %r1, %r2;",
    "shl.b64 %d1, %d2, %r1;", "add.f32 %r1, %f1, %r2;", "mov.b32 %f1, %r1;",
    "mov.b64 %d1, {%r1, %r2};", "mov.u64 %d1, %clock64;", "add.f16x2 %r1, %r2, %r3;",
    "mad.wide.s32 %d1, %r1, %r2, %d2;", "bfi.b64 %d1, %d2, %d3, %r1, %r2;",
    "popc.b64 %r1, %d1;", "ld.shared.b32 %r1, [%r2];", "and.pred %p1, %p2, %p3;",
    "ld.global.v2.u32 {%r1, _}, [%d1];", "ld.global.u32 {%r1}, [%d1];", "setp.eq.u32 _, %r1, 1;",
    "mov.b32 %r1, 0f3F800000;", "mov.u16 %h1, %tid.x;", "mov.b64 {_, %r1}, %d1;",
    "add.f64 %d1, %d2, 0f3F800000;", "mov.pred %p1, !%p2;", "selp.u32 %r1, 1, 2, !%p1;",
    "atom.global.cas.b32 _, [%d1], 1, %r1;", "red.global.add.f32 [%d1], 1.0;",
    "selp.b16 %h1, %h2, 0, %p1;", "cvt.rn.f16x2.f32 %r1, %f1, %f2;",
]  # fmt: skip

# The defect, the text, and line, column and message of the error.
BAD = [
    ("nothing at all", "", 0, 0, "the text is empty"),
    ("a comment only", "// nothing\n", 0, 0, "the text is empty"),
    ("no version", ".target sm_75", 1, 1, "'.version' expected, found '.target'"),
    ("a version that is none", ".version new", 1, 10, "version number expected, found 'new'"),
    ("a version to come", ".version 10.0", 1, 10, "unknown PTX version 10.0"),
    ("a version before the first", ".version 0.9", 1, 10, "unknown PTX version 0.9"),
    ("no target", ".version 6.4\n.address_size 64", 2, 1, "'.target' expected, found '.addr"),
    ("a target that is none", ".version 6.4\n.target x86", 2, 9, "target architecture expected"),
    ("an address size that is none", FIRST.replace("64\n", "48\n"), 3, 15, "address size 48 must"),
    ("something that is not PTX", FIRST + "hello", 4, 1, "module-level directive expected"),
    ("a local variable outside", FIRST + ".local .b32 x;", 4, 1, "a .local variable must"),
    ("a variable without type", FIRST + ".global x;", 4, 9, "type expected, found 'x'"),
    ("a variable twice", FIRST + ".global .b32 x;\n.const .b32 x;", 5, 13, "x is defined twice"),
    ("a crooked alignment", FIRST + ".global .align 3 .b32 x;", 4, 16, "alignment must be a pow"),
    ("a huge array", FIRST + ".global .b32 x[999999999999];", 4, 28, "x is too large"),
    ("too many values", FIRST + ".const .b32 x[1] = {1, 2};", 4, 25, "x has more initial values"),
    ("an unknown initial value", FIRST + ".const .u64 x = y;", 4, 17, "y is not declared"),
    ("two types", FIRST + ".global .texref .u32 t;", 4, 17, ".u32 is not allowed"),
    ("a function twice", FIRST + ".func f {ret;}\n.func f {ret;}", 5, 7, "f is defined twice"),
    ("a parameter twice", FIRST + ".entry k(.param .b32 a, .param .b32 a) {}", 4, 37, "a is def"),
    ("an alias of nothing", FIRST + ".alias a, b;", 4, 11, "b is not a function defined here"),
    ("an open comment", FIRST + "/* it goes on", 4, 1, "the comment has no end: close it with */"),
    ("an open body", ENTRY + "ret;\n", 5, 1, "the text ends inside this function's body"),
    ("an open section", FIRST + ".section .debug_info {\n.b8 1", 4, 22, "'{' is never closed"),
    ("an open statement", ENTRY + "add.s32 %r1, %r2", 8, 17, "';' or ',' expected, the text ends"),
    ("an unknown opcode", ENTRY + "frob.u32 %r1, %r2;", 8, 1, "unknown instruction"),
    ("an unknown directive", ENTRY + ".weird 3;", 8, 1, "unknown directive .weird"),
    ("an undeclared register", ENTRY + "  mov.b32 %r9, 1;", 8, 11, "%r9 is not declared"),
    ("an undeclared symbol", ENTRY + "ld.global.b32 %r1, [nowhere];", 8, 21, "nowhere is not decl"),
    ("an undeclared function", ENTRY + "call f;", 8, 6, "f is not declared"),
    ("a register twice", ENTRY + ".reg .b64 %r1;", 8, 11, "%r1 is defined twice"),
    ("a missing label", ENTRY + "bra away;", 8, 5, "label away is not declared"),
    ("a label of another scope", ENTRY + "{ a: ret; }\nbra a;", 9, 5, "label a is not declared"),
    ("a label twice", ENTRY + "a: ret;\na: ret;", 9, 1, "label a is defined twice"),
    ("a missing table", ENTRY + "brx.idx %r1, t;", 8, 14, "table of labels t is not declared"),
    ("a guard that is no predicate", ENTRY + "@%r1 ret;", 8, 2, "%r1 is not a predicate"),
    ("a guard that is not declared", ENTRY + "@%q ret;", 8, 2, "%q is not declared as a register"),
    ("a missing operand", ENTRY + "add.s32 %r1, %r2;", 8, 1, "add takes 3 to 4 operands, not 2"),
    ("an operand too many", ENTRY + "mov.b32 %r1, %r2, %r3;", 8, 1, "mov takes 2 operands, not 3"),
    ("a comma too many", ENTRY + "add.s32 %r1, , %r3;", 8, 14, "operand expected, found ','"),
    ("a missing comma", ENTRY + "add.s32 %r1 %r2, %r3;", 8, 13, "';' or ',' expected, found '%r2'"),
    ("an open bracket", ENTRY + "ld.b32 %r1, [%r2;", 8, 17, "']' expected, found ';'"),
    ("an open brace", ENTRY + "mov.b64 {%r1, %r2, 5;", 8, 21, "'}' expected, found ';'"),
    ("a number that is none", ENTRY + "mov.b32 %r1, 0x;", 8, 14, "number expected, found '0x'"),
    ("a number of 65 bits", ENTRY + f"mov.b64 %r1, {1 << 64};", 8, 14, "number expected, found"),
    ("a float cut short", ENTRY + "mov.b32 %r1, 0f3F80;", 8, 14, "number expected, found '0f3F80'"),
    ("deep nesting", ENTRY + "mov.b32 %r1, {{{{{1}}}}};", 8, 17, "vectors are nested too deeply"),
    ("a foreign character", ENTRY + "mov.b32 %r1, #;", 8, 14, "operand expected, found '#'"),
    ("a division by zero", ENTRY + "mov.b32 %r1, 1/0;", 8, 16, "division by zero"),
    ("deep parentheses", ENTRY + f"mov.b32 %r1, {'(' * 99}", 8, 39, "the expression is nested too"),
    ("a negative dimension", FIRST + ".global .b32 x[1-2];", 4, 16, "a dimension must not be neg"),
    ("too many registers", ENTRY + ".reg .b32 %q<9999999>;", 8, 11, "too many registers"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "column", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_a_bad_text_is_refused_at_its_place(text, line, column, message):
    with pytest.raises(PtxError) as caught:
        parse(text, "bad.ptx")
    error = caught.value
    assert error.message.startswith(message)
    assert (error.file, error.line, error.column) == ("bad.ptx", line, column)


@pytest.mark.parametrize(("statement", "message"), MISFITS)
def test_a_register_that_does_not_fit_is_refused(statement, message):
    with pytest.raises(PtxError) as caught:
        parse(kernel(statement))
    assert caught.value.message == message
    assert caught.value.instruction == statement[:-1]


@pytest.mark.parametrize("statement", FITS)
def test_a_register_that_fits_is_not_refused(statement):
    assert parse(kernel(statement)).function("k").body[0].text == statement


def test_the_error_quotes_the_statement():
    with pytest.raises(PtxError) as caught:
        parse(ENTRY + "mov.b32 %r1, 0;\n   add.s32\t%r1,  %r7, 1; ret;\n}", "bad.ptx")
    assert caught.value.instruction == "add.s32 %r1, %r7, 1"
    assert str(caught.value) == "bad.ptx:9:18: %r7 is not declared: add.s32 %r1, %r7, 1"


def test_bytes_that_are_not_text_are_refused():
    with pytest.raises(PtxError, match="not UTF-8 text: byte 0"):
        parse(b"\xff\xfe")


def test_a_complete_text_is_not_refused():
    assert parse(HEAD).functions == ()
