"""Pointers, their pieces and numbers; words of structs; and how a kernel reaches other memory."""

from __future__ import annotations

import pytest
from helpers.lowering.access_inference import inferred
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import Access

VALUE, READ, WRITE = Access.VALUE, Access.READ, Access.WRITE
READ_WRITE, UNKNOWN = Access.READ_WRITE, Access.UNKNOWN

INDICES = {
    "shifted by little": "ld.global.u32 %r1, [%d1]; shl.b32 %r1, %r1, 4; cvt.u64.u32 %d5, %r1;",
    "shifted by much": "ld.global.u32 %r1, [%d1]; shl.b32 %r1, %r1, 24; cvt.u64.u32 %d5, %r1;",
    "bytes of a word": "ld.global.u8 %r1, [%d1]; ld.global.u8 %r2, [%d1+1]; shl.b32 %r2, %r2, 16;"
    " shl.b32 %r1, %r1, 24; or.b32 %r1, %r1, %r2; cvt.s64.s32 %d5, %r1;",
    "cut and widened": "ld.global.u64 %d4, [%d1]; cvt.u32.u64 %r1, %d4; cvt.s64.s32 %d5, %r1;",
    "widened from a long": "ld.global.u64 %d4, [%d1]; cvt.s64.s32 %d5, %d4;",
    "cut by shifts": "ld.global.u64 %d4, [%d1]; shl.b64 %d4, %d4, 32; shr.s64 %d5, %d4, 32;",
    "cut and scaled": "ld.global.u64 %d4, [%d1]; shl.b64 %d3, %d4, 32; shr.s64 %d5, %d3, 30;",
    "masked": "ld.global.u64 %d4, [%d1]; and.b64 %d5, %d4, 1023;",
    "a field": "ld.global.u64 %d4, [%d1]; bfe.u64 %d5, %d4, 8, 24;",
    "the upper half": "ld.global.u64 %d4, [%d1]; shr.u64 %d5, %d4, 32;",
}


@pytest.mark.parametrize("way", INDICES)
def test_what_is_cut_to_32_bits_is_an_index(way):
    found = inferred(f"{INDICES[way]} add.s64 %d6, %d0, %d5; ld.global.b32 %r1, [%d6];", 2)
    assert (found.parameters, found.beyond) == ((READ, READ), "")


def test_a_number_that_was_shifted_far_in_32_bits_is_stored_as_a_number():
    text = kernel(
        "ld.param.u32 %r1, [n]; ld.param.u64 %d0, [out]; shl.b32 %r2, %r1, 24;"
        " st.global.u32 [%d0], %r2; ret;",
        parameters=".param .u32 n, .param .u64 out",
    )
    assert analyse(parse(text), "k").parameters == (VALUE, WRITE)


@pytest.mark.parametrize(
    "way",
    [
        "ld.global.v2.b32 {%r1, %r2}, [%d0]; mov.b64 %d5, {%r1, %r2};",
        "ld.global.u32 %r1, [%d0]; cvt.u64.u32 %d5, %r1; shl.b64 %d5, %d5, 32;",
        "ld.global.u32 %r1, [%d0]; cvt.u64.u32 %d4, %r1; bfi.b64 %d5, %d4, %d4, 32, 32;",
        "ld.global.u32 %r1, [%d0]; st.local.u32 [box], %r1; ld.local.u64 %d5, [box];",
        "ld.global.u8 %r1, [%d0]; shl.b32 %r1, %r1, 24; mov.b64 %d5, {%r2, %r1};",
        "ld.global.u64 %d4, [%d0]; shl.b64 %d4, %d4, 16; shr.u64 %d5, %d4, 16;",
        "ld.global.u64 %d4, [%d0]; shl.b64 %d4, %d4, 32; shr.u64 %d5, %d4, 8;",
        "ld.global.u64 %d5, [%d0];",
        "ld.shared.u64 %d5, [%r2]; cp.async.ca.shared.global [%r1], [%d0], 8;",
    ],
)
def test_what_gets_into_the_upper_half_may_be_a_pointer(way):
    """This also holds where a known pointer is the alternative."""
    found = inferred(f".local .b64 box[2]; {way} selp.b64 %d6, %d5, %d1, %p1; st.b32 [%d6], 0;", 2)
    assert found.parameters[0] is UNKNOWN
    assert "pointer from memory" in found.beyond


BEYOND = {
    "a loaded pointer": ("ld.global.u64 %d5, [%d0]; st.b32 [%d5], 0;", "from memory"),
    "one of a variable": ("ld.global.u64 %d5, [table]; st.b32 [%d5], 0;", "from memory"),
    "one of constant memory": ("ld.const.u64 %d5, [fixed]; st.b32 [%d5], 0;", "from memory"),
    "two numbers": ("mov.b64 %d5, {%r1, %r2}; st.b32 [%d5], 0;", "cannot be traced"),
    "a constant": ("st.global.b32 [4096], 0;", "cannot be traced"),
    "nothing": ("st.global.b32 [%d7], 0;", "cannot be traced"),
    "a product": ("mul.lo.s64 %d5, %d0, 3; st.b32 [%d5], 0;", "cannot be traced"),
    "a call of other code": ("call f;", "code that is not in this text (`f`)"),
    "a texture": ("tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d0, {%f5}];", "a handle of `tex`"),
    "a tensor map": (
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%r1], [%d0, {%r2}], [%r3];",
        "a tensor map",
    ),
}


@pytest.mark.parametrize("way", BEYOND)
def test_a_kernel_says_why_it_goes_beyond_its_parameters(way):
    body, why = BEYOND[way]
    before = ".global .b64 table[2]; .const .b64 fixed; .extern .func f;"
    found = inferred(body, before=before).beyond
    assert why in found
    assert "line" in found


def test_a_kernel_that_goes_beyond_may_touch_every_variable_if_other_code_runs():
    assert inferred("call f;", before=".global .b32 x; .extern .func f;").symbols == {"x": UNKNOWN}


@pytest.mark.parametrize(
    ("text", "is_beyond"), [("%d of %s", True), ("%-8.3s", True), ("%f", False)]
)
def test_a_string_that_is_printed_is_read_wherever_it_is(text, is_beyond):
    numbers = ", ".join(str(each) for each in (*text.encode(), 0))
    before = f""".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
        .global .b8 format[{len(text) + 1}] = {{{numbers}}};"""
    body = """.local .b64 box; ld.global.b64 %d5, [%d0]; st.local.b64 [box], %d5;
        mov.b64 %d6, box; cvta.local.u64 %d6, %d6; mov.b64 %d7, format;
        { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d7;
        st.param.b64 [a], %d6; call (r), vprintf, (f, a); }"""
    assert bool(inferred(body, before=before).beyond) is is_beyond


def fields(body, parameter=".param .align 8 .b8 v[24]"):
    """The inferred accesses of a kernel with a struct of three words."""
    text = kernel(f"{body} ret;", parameters=parameter)
    found = analyse(parse(text), "k")
    return {each.offset: each.access for each in found.fields[0]}, found


def test_the_words_of_a_struct_are_told_apart():
    found, whole = fields("""ld.param.u64 %d0, [v]; ld.param.u64 %d1, [v+16];
        ld.param.u32 %r1, [v+8]; mad.wide.u32 %d2, %r1, 4, %d0;
        ld.global.u32 %r2, [%d2]; st.global.u32 [%d1], %r2;""")
    assert found == {0: READ, 16: WRITE}
    assert (whole.parameters, whole.beyond) == ((READ_WRITE,), "")
    assert "address at byte 16: written in line" in whole.reasons[0]


def test_a_vector_of_words_of_a_struct_is_told_apart():
    found, _ = fields("ld.param.v2.u64 {%d0, %d1}, [v]; st.global.u32 [%d1], 0;",
                      ".param .align 16 .b8 v[32]")  # fmt: skip
    assert found == {8: WRITE}


def test_a_struct_that_is_looked_at_by_address_may_give_any_of_its_words():
    found, whole = fields("mov.b64 %d0, v; ld.param.u64 %d1, [%d0+8]; st.global.u32 [%d1], 0;")
    assert (found, whole.beyond) == ({0: WRITE, 8: WRITE, 16: WRITE}, "")


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ("ld.param.v2.u32 {%r1, %r2}, [v]; mov.b64 %d1, {%r1, %r2};", ".param .align 8 .b8 v[16]"),
        ("ld.param.u32 %r1, [v+4]; ld.param.u32 %r2, [v+8]; mov.b64 %d1, {%r1, %r2};",
         ".param .align 4 .b8 v[12]"),
        ("mov.b64 %d0, v; ld.param.u64 %d1, [%d0+4];", ".param .align 4 .b8 v[12]"),
        ("ld.param.u64 %d1, [v+4];", ".param .align 4 .b8 v[12]"),
    ],
)  # fmt: skip
def test_a_pointer_in_parts_of_a_struct_is_not_traced(body, parameter):
    _, whole = fields(f"{body} st.global.u32 [%d1], 0;", parameter)
    assert whole.beyond


def test_two_numbers_may_be_one_pointer():
    text = kernel(
        "ld.param.u32 %r1, [low]; ld.param.u32 %r2, [high]; mov.b64 %d0, {%r1, %r2};"
        " st.global.u32 [%d0], 0; ret;",
        parameters=".param .u32 low, .param .u32 high",
    )
    found = analyse(parse(text), "k")
    assert found.parameters == (VALUE, VALUE)
    assert "`high`" in found.beyond


def test_reasons_name_lines():
    text = kernel("ld.param.u64 %d0, [p];\nld.global.u32 %r1, [%d0];\nst.global.u32 [%d0], 1; ret;",
                  parameters=".param .u64 p, .param .u32 n")  # fmt: skip
    line = text[: text.index("ld.global")].count("\n") + 1
    reasons = analyse(parse(text), "k").reasons
    assert reasons == (
        f"read in line {line}, written in line {line + 1}",
        "never used as an address",
    )
