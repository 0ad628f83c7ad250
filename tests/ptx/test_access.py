"""Results of the access analysis for a compiler's kernels, and for awkward handwritten ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from helpers.lowering.access_inference import accesses
from helpers.ptx_generators.kernel_frame import HEAD, kernel

from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import Access

CORPUS = Path(__file__).parent / "corpus"
TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")

VALUE, READ, WRITE = Access.VALUE, Access.READ, Access.WRITE
READ_WRITE, UNKNOWN = Access.READ_WRITE, Access.UNKNOWN

# Each kernel of corpus/kernels.cu: its parameters, and the module's variables that it touches.
COMPILED = {
    "saxpy": ((READ_WRITE, READ, VALUE, VALUE), {}),
    "block_sum": ((WRITE, READ, VALUE), {}),
    "matmul": ((READ, READ, WRITE, VALUE), {}),
    "transpose": ((WRITE, READ, VALUE, VALUE), {}),
    "histogram": ((READ_WRITE, READ, VALUE), {"launches": READ_WRITE, "bin_of": READ}),
    "depths": ((WRITE, READ), {}),
    "struct_copy": ((READ_WRITE, VALUE), {}),
    "sines": ((WRITE, READ), {"__cudart_i2opi_d": READ, "__cudart_sin_cos_coeffs": READ}),
    "local_array": ((WRITE, READ, VALUE), {}),
    "chosen_pointer": ((WRITE, WRITE, WRITE, WRITE, VALUE), {}),
    "many_ways": ((WRITE, READ, VALUE), {}),
    "half_scale": ((WRITE, READ, VALUE), {}),
    "warp_sum": ((WRITE, READ), {}),
    # A pointer written through rows[i] may be loaded from rows later.
    "follow": ((UNKNOWN, UNKNOWN), {}),
    "keep_pointer": ((WRITE, UNKNOWN), {}),
    "gather": ((WRITE, READ, READ, READ), {}),
    "by_symbol": ((WRITE,), {"cursor": UNKNOWN, "table": UNKNOWN}),
    "report": ((READ,), {"$str": READ}),
    "copy_doubles": ((WRITE, READ, VALUE, VALUE), {}),
}


@cache
def corpus(target):
    path = CORPUS / f"{target}.ptx"
    return parse(path.read_text(), path.name)


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_has_no_other_kernels(target):
    assert {each.name for each in corpus(target).kernels} == set(COMPILED)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_kernel_does_what_its_source_says(name, target):
    found = analyse(corpus(target), name)
    assert (found.parameters, found.symbols) == COMPILED[name]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ret;", VALUE),
        ("prefetch.global.L2 [%d0];", VALUE),
        ("setp.eq.s64 %p1, %d0, 0;", VALUE),
        ("isspacep.global %p1, %d0;", VALUE),
        ("ld.global.nc.f32 %f1, [%d0];", READ),
        ("ld.b32 %r1, [%d0+4];", READ),
        ("@%p1 st.global.b32 [%d0], 1;", WRITE),
        ("atom.global.add.u32 %r1, [%d0], 1;", READ_WRITE),
        ("red.global.add.u32 [%d0], 1;", READ_WRITE),
        ("cvta.to.global.u64 %d5, %d0; ld.global.b32 %r1, [%d5]; st.b32 [%d0], %r1;", READ_WRITE),
        ("cp.async.ca.shared.global [%r1], [%d0], 4;", READ),
        ("cp.async.cg.shared.global [%r1], [%d0], 16, %r2;", READ),
        ("cp.async.mbarrier.arrive.b64 [%d0];", UNKNOWN),
        ("mbarrier.arrive.b64 %d5, [%d0];", UNKNOWN),
        ("ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%d0];", READ),
        ("stmatrix.sync.aligned.m8n8.x1.b16 [%d0], {%r1};", WRITE),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
         " [%r1], [%d0], 16, [%r2];", UNKNOWN),
        ("tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d0, {%f5}];", UNKNOWN),
        ("wmma.load.c.sync.aligned.row.m8n8k4.f64 {%d4, %d5}, [%d0], %r1;", READ),
        ("wmma.store.d.sync.aligned.row.m8n8k4.f64 [%d0], {%d4, %d5}, %r1;", WRITE),
        ("discard.global.L2 [%d0], 128;", UNKNOWN),
    ],
)  # fmt: skip
def test_an_instruction_accesses_its_address(body, expected):
    assert accesses(body) is expected


@pytest.mark.parametrize(
    "way",
    [
        "mov.b64 %d5, %d0;",
        "add.s64 %d5, %d0, 16;",
        "sub.s64 %d5, %d0, %d7;",
        "mad.wide.u32 %d5, %r1, 4, %d0;",
        "mad.lo.s64 %d5, %d6, 4, %d0;",
        "selp.b64 %d5, %d0, %d6, %p1;",
        "and.b64 %d5, %d0, -16;",
        "max.u64 %d5, %d0, %d6;",
        "mov.b64 {%r1, %r2}, %d0; shfl.sync.idx.b32 %r3, %r1, 0, 31, -1; mov.b64 %d5, {%r3, %r2};",
        "cvt.u32.u64 %r1, %d0; shr.u64 %d6, %d0, 32; shl.b64 %d6, %d6, 32;"
        " cvt.u64.u32 %d7, %r1; or.b64 %d5, %d7, %d6;",
        "shl.b64 %d5, %d0, 16; shr.u64 %d5, %d5, 16;",
        "cvta.to.global.u64 %d6, %d0; mov.b64 %d5, %d6;",
        "st.local.b64 [box], %d0; ld.local.b64 %d5, [box];",
        "st.shared.b64 [crate], %d0; ld.shared.b64 %d5, [crate];",
        "mov.b64 %d6, box; cvta.local.u64 %d6, %d6; st.b64 [%d6], %d0; ld.b64 %d5, [%d6];",
        "mov.b64 %d6, p0; cvta.param.u64 %d6, %d6; ld.b64 %d5, [%d6];",
        "mov.b64 %d6, p0; ld.param.b64 %d5, [%d6];",
        "atom.shared.exch.b64 %d6, [crate], %d0; atom.shared.exch.b64 %d5, [crate], 0;",
        "{ .param .b64 a; st.param.b64 [a], %d0; ld.param.b64 %d5, [a]; }",
    ],
)
def test_an_address_is_followed_however_it_gets_there(way):
    boxes = ".local .b64 box[2]; .shared .b64 crate[2];"
    assert accesses(f"{boxes} {way} st.global.b32 [%d5], 0;").writes


def test_a_reduction_over_lanes_gives_halves_of_a_pointer_back():
    body = """mov.b64 {%r1, %r2}, %d0; redux.sync.or.b32 %r1, %r1, -1;
        redux.sync.max.u32 %r2, %r2, -1; mov.b64 %d5, {%r1, %r2};
        selp.b64 %d6, %d5, %d1, %p1; st.global.b32 [%d6], 0;"""
    assert accesses(body, 2) == (WRITE, WRITE)


def test_the_order_of_instructions_does_not_matter():
    assert accesses("top: st.global.b32 [%d5], 0; mov.b64 %d5, %d0; @%p1 bra top;") is WRITE


def test_a_multiplied_parameter_is_an_index():
    assert accesses("mul.lo.s64 %d5, %d1, 4; add.s64 %d6, %d0, %d5; ld.global.b32 %r1, [%d6];", 2) \
        == (READ, VALUE)  # fmt: skip


def test_an_index_without_a_base_may_be_anything():
    assert accesses("mul.lo.s64 %d5, %d1, 4; ld.global.b32 %r1, [%d5];", 2) == (UNKNOWN, UNKNOWN)


def test_a_loaded_index_leaves_both_arrays_read():
    body = """
        ld.global.s32 %r1, [%d1]; mul.wide.s32 %d5, %r1, 4; add.s64 %d6, %d0, %d5;
        ld.global.b32 %r2, [%d6];
        ld.global.u8 %r3, [%d1]; cvt.u64.u32 %d7, %r3; add.s64 %d8, %d0, %d7;
        ld.global.u8 %r4, [%d8];
        """
    assert accesses(body, 2) == (READ, READ)


def test_a_pointer_that_was_loaded_and_followed_is_not_known():
    assert accesses("ld.global.b64 %d5, [%d0]; ld.global.b32 %r1, [%d5];") is UNKNOWN
    assert accesses("ld.global.v2.b32 {%r1, %r2}, [%d0]; mov.b64 %d5, {%r1, %r2};"
                    " ld.global.b32 %r1, [%d5];") is UNKNOWN  # fmt: skip


def test_a_pointer_that_a_copy_brought_to_shared_memory_is_one_that_was_loaded():
    body = "cp.async.ca.shared.global [%r1], [%d0], 8; cp.async.wait_all;"
    body += "ld.shared.u64 %d5, [%r1]; st.global.b32 [%d5], 1;"
    assert accesses(body) is UNKNOWN


def test_an_address_of_a_window_is_nobody_elses_however_it_was_worked_out():
    body = "cvt.u64.u32 %d5, %r1; cvta.shared.u64 %d5, %d5; st.b32 [%d5], 1;"
    assert accesses(f"{body} ld.global.b32 %r2, [%d0];") is READ
    assert accesses(f"cvt.u64.u32 %d5, %r1; st.b32 [%d5], 1; {body}") is UNKNOWN


def test_a_pointer_copied_through_memory_is_not_known():
    """A pointer in %d0's memory is copied to %d1's, loaded through %d2, and followed."""
    body = """
        ld.global.b64 %d5, [%d0]; st.global.b64 [%d1], %d5;
        ld.global.b64 %d6, [%d2]; st.global.b32 [%d6], 0;
        """
    assert accesses(body, 3) == (UNKNOWN, WRITE, UNKNOWN)


def test_a_parameter_whose_address_is_kept_in_memory_is_not_known():
    assert accesses("st.global.b64 [%d0], %d1;", 2) == (WRITE, UNKNOWN)
    assert accesses("atom.global.exch.b64 %d5, [%d0], %d1;", 2) == (READ_WRITE, UNKNOWN)
    assert accesses("st.b64 [%d0], %d1;", 2) == (WRITE, UNKNOWN)


def test_an_address_from_nowhere_makes_every_pointer_unknown():
    assert accesses("ld.global.b32 %r1, [%d5];", 2) == (UNKNOWN, UNKNOWN)
    assert accesses("ld.global.b32 %r1, [4096];", 2) == (UNKNOWN, UNKNOWN)


def test_small_numbers_and_floats_stay_values():
    text = kernel(
        "ld.param.u32 %r1, [n]; ld.param.f64 %d5, [s]; ld.global.b32 %r2, [%d6]; ret;",
        parameters=".param .u32 n, .param .f64 s, .param .u64 p",
    )
    assert analyse(parse(text), "k").parameters == (VALUE, VALUE, UNKNOWN)


CALL = "{ .param .b64 a; st.param.b64 [a], %d0; call NAME, (a); }"


def called(function, call=CALL, count=1):
    return accesses(call.replace("NAME", "f"), count, before=function)


def test_a_device_function_is_followed():
    body = "{ .reg .b64 %d; .reg .b32 %r; ld.param.b64 %d, [x]; ld.b32 %r, [%d]; ret; }"
    assert called(f".func f(.param .b64 x) {body}") is READ


def test_a_device_function_with_registers_as_parameters_is_followed():
    text = ".func (.reg .b64 y) f(.reg .b64 x) { mov.b64 y, x; ret; }"
    assert called(text, "call (%d5), f, (%d0); st.global.b32 [%d5], 0;") is WRITE


def test_a_pointer_that_a_function_returns_is_followed():
    text = """.func (.param .b64 y) f(.param .b64 x)
        { .reg .b64 %d; ld.param.b64 %d, [x]; add.s64 %d, %d, 8; st.param.b64 [y], %d; ret; }"""
    call = """{ .param .b64 a; .param .b64 r; st.param.b64 [a], %d0; call (r), f, (a);
        ld.param.b64 %d5, [r]; } st.global.b32 [%d5], 0;"""
    assert called(text, call) is WRITE


def test_a_recursive_function_is_followed():
    text = """.func f(.param .b64 x) { .reg .b64 %d; .reg .pred %p; ld.param.b64 %d, [x];
        add.s64 %d, %d, 4; @%p st.b32 [%d], 0;
        { .param .b64 a; st.param.b64 [a], %d; call f, (a); } ret; }"""
    assert called(text) is WRITE


def test_a_function_that_is_not_here_makes_its_arguments_unknown():
    assert called(".extern .func f(.param .b64 x);") is UNKNOWN
    assert called(".extern .func f(.param .b64 x);", "call f, (%d0);", 2) == (UNKNOWN, VALUE)


def test_a_function_that_is_not_here_may_touch_every_variable():
    text = kernel("call f; ret;", before=".global .b32 counter; .extern .func f;")
    assert analyse(parse(text), "k").symbols == {"counter": UNKNOWN}


def test_a_function_that_is_not_here_may_find_what_was_passed_in_memory():
    body = """.local .b64 box; st.local.b64 [box], %d0; mov.b64 %d5, box;
        { .param .b64 a; st.param.b64 [a], %d5; call f, (a); }"""
    assert accesses(body, before=".extern .func f(.param .b64 x);") is UNKNOWN


def test_an_indirect_call_makes_its_arguments_unknown():
    call = """{ .param .b64 a; t: .callprototype _ (.param .b64 _);
        st.param.b64 [a], %d0; call %d1, (a), t; }"""
    assert called("", call, 2) == (UNKNOWN, VALUE)


def test_an_indirect_call_with_its_targets_listed_is_followed():
    function = ".func f(.param .b64 x) { .reg .b64 %d; ld.param.b64 %d, [x]; st.b8 [%d], 0; ret; }"
    call = "{ .param .b64 a; t: .calltargets f; st.param.b64 [a], %d0; call %d1, (a), t; }"
    assert called(function, call, 2) == (WRITE, VALUE)


def test_memory_from_malloc_is_nobodys():
    text = ".extern .func (.param .b64 r) malloc(.param .b64 n);"
    call = """{ .param .b64 a; .param .b64 r; st.param.b64 [a], 64; call (r), malloc, (a);
        ld.param.b64 %d5, [r]; } st.b32 [%d5], 0;"""
    assert accesses(call, before=text) is VALUE


def test_a_constant_variable_is_only_ever_read():
    text = kernel("ld.const.b32 %r1, [c]; ld.global.b32 %r2, [%d5];", before=".const .b32 c;")
    assert analyse(parse(text), "k").symbols == {"c": READ}


def test_a_pointer_in_an_initial_value_is_found():
    before = ".global .b32 x; .global .u64 box = generic(x);"
    text = kernel("ld.global.b64 %d1, [box]; st.b32 [%d1], 0;", before=before)
    found = analyse(parse(text), "k").symbols
    assert found["x"].writes
    assert found["box"].reads


def test_each_access_says_whether_it_reads_and_writes():
    assert [each.reads for each in Access] == [False, True, False, True, True]
    assert [each.writes for each in Access] == [False, False, True, True, True]


def test_a_kernel_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError):
        analyse(parse(HEAD), "k")
