"""The type of number that a kernel shows for a parameter's memory: never one too many."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from helpers.ptx_generators import typed_kernels
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.driver.arguments.argument_checks import _may_hold
from cudasync.driver.compiler.nvrtc import compile_program
from cudasync.ptx import element_types, parse
from cudasync.ptx.access_analysis import transfer_functions
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import ScalarType

CORPUS = Path(__file__).parent / "corpus"
OLD, NEW = ("sm_75", "sm_80", "sm_90"), ("sm_100", "sm_120")
F16, F32, F64 = ScalarType.F16, ScalarType.F32, ScalarType.F64
F16_PAIR, F32_PAIR = ScalarType.F16X2, ScalarType.F32X2
S16, S32, S64 = ScalarType.S16, ScalarType.S32, ScalarType.S64

# For each kernel of corpus/kernels.cu that shows types: the types. For newer targets the compiler
# loads everything as `.b32` and `.b64`, so floats that a kernel only moves show no type.
COMPILED = {
    "saxpy": ((F32, F32, None, None), (F32, F32, None, None)),
    "block_sum": ((F32, F32, None), (None, F32, None)),
    "matmul": ((F32, F32, F32, None), (None, None, F32, None)),
    "transpose": ((F64, F64, None, None), (None, None, None, None)),
    "sines": ((F64, F64), (F64, None)),
    "many_ways": ((F32, F32, None), (F32, F32, None)),
    "half_scale": ((F16_PAIR, F16_PAIR, None), (F16_PAIR, F16_PAIR, None)),
    "gather": ((F32, F32, S32, None), (F32, F32, S32, None)),
    "histogram": ((S32, None, None), (S32, None, None)),
    "warp_sum": ((S32, S32), (S32, S32)),
    "report": ((S32,), (S32,)),
    "copy_doubles": ((F64, F64, None, None), (None, None, None, None)),
    "struct_copy": ((F32, None), (F32, None)),
}


@pytest.mark.parametrize("target", OLD + NEW)
def test_a_compiled_kernel_shows_types_of_its_source_and_no_others(target):
    module = parse((CORPUS / f"{target}.ptx").read_text())
    for each in module.kernels:
        nothing = (None,) * len(each.parameters)
        expected = COMPILED.get(each.name, (nothing, nothing))[target in NEW]
        assert analyse(module, each.name).elements == expected, each.name


def shown(body):
    text = kernel(f"ld.param.u64 %d0, [x];\n{body}")
    return analyse(parse(text), "k").elements[0]


ONE_TYPE = {
    "ld.global.f32 %f1, [%d0];": F32,
    "ld.f32 %f1, [%d0];": F32,
    "st.global.f64 [%d0], %d1;": F64,
    "st.global.f32 [%d0], 0f00000000;": F32,
    "atom.global.add.f32 %f1, [%d0], %f2;": F32,
    "red.global.add.f64 [%d0], %d2;": F64,
    "red.global.add.noftz.f16x2 [%d0], %r2;": F16_PAIR,
    # Newer compilers load bits, which are used as a float or come from one.
    "ld.global.b32 %r1, [%d0]; add.f32 %r2, %r1, %r1;": F32,
    "ld.global.b64 %d1, [%d0]; setp.lt.f64 %p1, %d1, 0d0000000000000000;": F64,
    "ld.global.b16 %h1, [%d0]; cvt.f32.f16 %r1, %h1;": F16,
    "cvt.rn.f32.s32 %r1, %r2; st.global.b32 [%d0], %r1;": F32,
    "ld.global.b32 %r1, [%d0]; mov.b32 %r2, %r1; selp.b32 %r3, %r2, %r4, %p1; neg.f32 %r5, %r3;":
        F32,
    "ld.global.b32 %r1, [%d0]; shfl.sync.down.b32 %r2|%p1, %r1, 1, 31, -1; neg.f32 %r4, %r2;": F32,
    "ld.global.v2.b32 {%r1, %r2}, [%d0]; fma.rn.f32 %r3, %r1, %r2, %r1;": F32,
    "ld.global.v2.f32 {%f1, %f2}, [%d0]; add.f32 %f3, %f1, %f2;": F32,
    # Registers with several uses in sequence.
    "ld.global.b32 %r1, [%d0]; add.f32 %r2, %r1, %r1; mov.u32 %r1, %tid.x; add.s32 %r3, %r1, 1;":
        F32,
    # Two floats in one register, and a last one alone.
    "ld.global.u32 %r1, [%d0]; add.f16x2 %r2, %r1, %r1;": F16_PAIR,
    "ld.global.b64 %d1, [%d0]; add.rn.f32x2 %d2, %d1, %d1;": F32_PAIR,
    "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0]; add.f16x2 %r5, %r1, %r1;": F16_PAIR,
    "ld.global.b32 %r1, [%d0]; add.f16x2 %r2, %r1, %r1; ld.global.u16 %h1, [%d0+4];"
    "cvt.f32.f16 %f1, %h1;": F16,
    # Integers, by arithmetic that floats do not have; logic beside it changes nothing.
    "ld.global.u32 %r1, [%d0]; add.s32 %r2, %r1, 1;": S32,
    "ld.global.b32 %r1, [%d0]; and.b32 %r2, %r1, 255; mul.lo.s32 %r3, %r1, %r2;": S32,
    "ld.global.u32 %r1, [%d0]; cvt.rn.f32.u32 %f1, %r1;": S32,
    "cvt.rzi.s32.f32 %r1, %f1; st.global.u32 [%d0], %r1;": S32,
    "ld.global.u32 %r1, [%d0]; mul.wide.s32 %d1, %r1, 4;": S32,
    "ld.global.u32 %r1, [%d0]; setp.lt.s32 %p1, %r1, %r2;": S32,
    "ld.global.u32 %r1, [%d0]; mov.b32 %r2, %r1; st.global.u32 [%d0+4], %r2; neg.s32 %r3, %r2;":
        S32,
    "ld.global.u16 %h1, [%d0]; mul.lo.s16 %h2, %h1, %h1;": S16,
    "ld.global.u64 %d1, [%d0]; add.s64 %d2, %d1, 1;": S64,
    "ld.global.v2.u32 {%r1, %r2}, [%d0]; add.s32 %r3, %r1, %r2;": S32,
    "atom.global.add.u32 %r1, [%d0], 1;": S32,
    "red.global.inc.u32 [%d0], %r1;": S32,
    "ld.global.s32 %r1, [%d0];": S32,
    "wmma.load.c.sync.aligned.row.m8n8k4.f64 {%d4, %d5}, [%d0], %r1;": F64,
}  # fmt: skip

NO_TYPE = [
    "ret;",
    # Two types, or one type and another use.
    "ld.global.f32 %f1, [%d0]; ld.global.f64 %d1, [%d0+8];",
    "ld.global.f32 %f1, [%d0]; ld.global.s32 %r1, [%d0+4];",
    "ld.global.f32 %f1, [%d0]; atom.global.max.s32 %r1, [%d0], 3;",
    "ld.global.f32 %f1, [%d0]; cp.async.ca.shared.global [%r1], [%d0], 4;",
    # Bits that are only moved may be anything.
    "ld.global.b32 %r1, [%d0]; st.global.b32 [%d0+4], %r1;",
    "ld.global.v2.f32 {%f1, %f2}, [%d0]; st.global.v2.f32 [%d0+16], {%f1, %f2};",
    "atom.global.exch.b32 %r1, [%d0], 0;",
    # The bits of a float have another use, so the type is uncertain.
    "ld.global.f32 %f1, [%d0]; mov.b32 %r1, %f1; and.b32 %r2, %r1, 255;",
    "ld.global.v2.f32 {%f1, %f2}, [%d0]; mov.b32 %r1, %f1; add.f16x2 %r2, %r1, %r1;"
    "add.f32 %f3, %f2, %f2;",
    "ld.global.b32 %r1, [%d0]; add.f32 %r2, %r1, %r1; add.s32 %r3, %r1, 1;",
    "ld.global.b64 %d1, [%d0]; mov.b64 {%r1, %r2}, %d1; add.f32 %r3, %r1, %r2;",
    # The source has integers there, and computes with their bits as floats.
    "ld.global.u32 %r1, [%d0]; mov.b32 %f1, %r1; add.f32 %f2, %f1, %f1;",
    # Integer operations that are usual on the bits of floats.
    "ld.global.u32 %r1, [%d0]; shr.u32 %r2, %r1, 31; xor.b32 %r3, %r1, %r2;",
    "ld.global.b32 %r1, [%d0]; setp.lt.s32 %p1, %r1, 0; setp.gt.s32 %p2, %r1, -1;",
    "ld.global.b32 %r1, [%d0]; setp.ne.s32 %p1, %r1, %r2;",
    "ld.global.b32 %r1, [%d0]; cvt.u64.u32 %d1, %r1;",
    "atom.global.max.s32 %r1, [%d0], %r2;",
    "ld.global.b32 %r1, [%d0]; atom.global.cas.b32 %r2, [%d0], %r1, %r3;",
    # An integer beside a value that is only moved: this may be a structure.
    "ld.global.v2.b32 {%r1, %r2}, [%d0]; add.s32 %r3, %r1, 1;",
    "ld.global.b32 %r1, [%d0]; add.s32 %r3, %r1, 1; st.global.b32 [%d0+4], 0;",
    # Integers of two sizes, and bytes, which every array has.
    "atom.global.add.u32 %r1, [%d0], 1; atom.global.add.u64 %d1, [%d0+8], 1;",
    "ld.global.u8 %h1, [%d0]; cvt.rn.f32.u16 %f1, %h1;",
    "ld.global.u8 %h1, [%d0];",
    # Memory of pointers.
    "ld.global.u64 %d1, [%d0]; ld.global.f32 %f1, [%d1];",
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), ONE_TYPE.items(), ids=ONE_TYPE)
def test_the_one_floating_type_of_all_accesses_is_shown(body, expected):
    assert shown(body) is expected


@pytest.mark.parametrize("body", NO_TYPE)
def test_what_may_be_anything_else_shows_nothing(body):
    assert shown(body) is None


def untold_never(instruction):
    return False


def joined_never(self, slots):
    pass


PLANTED = {
    "moves say nothing": (element_types.ValueTypes, "_join", joined_never),
    "bits in memory are integers": (element_types, "_is_untold", untold_never),
    "arithmetic on integers says nothing": (
        element_types.ValueTypes, "_see",
        lambda self, slots, shown, see=element_types.ValueTypes._see:
            see(self, slots, shown) if isinstance(shown, ScalarType) else None,
    ),
    "comparisons show integers": (element_types, "_is_test_of_bits", untold_never),
    "the type of a load says nothing of its values": (
        element_types, "_as_moved", lambda element, moved: element
    ),
    "a vector access is one of its elements": (
        transfer_functions, "shown_by",
        lambda each: element_types._element(each.type) if each.types else None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("where", "name", "wrong"), PLANTED.values(), ids=PLANTED)
def test_the_tables_would_notice_a_rule_that_is_missing(monkeypatch, where, name, wrong):
    monkeypatch.setattr(where, name, wrong)
    expected = {**ONE_TYPE, **dict.fromkeys(NO_TYPE)}
    assert {body: shown(body) for body in expected} != expected


def wrongly_refused(seed, target):
    """Arrays that random kernels refuse though the source declares their type, and the number of
    pointers that show a type."""
    draw = random.Random(seed)
    written = [typed_kernels.kernel(draw, f"k{place}") for place in range(40)]
    source = "".join(text for text, _ in written)
    text, _, _ = compile_program(source, "kernels.cu", [f"--gpu-architecture={target}"], ())
    module = parse(text)
    refused, count_shown = [], 0
    for place, (body, dtypes) in enumerate(written):
        elements = analyse(module, f"k{place}").elements
        for dtype, element in zip(dtypes, elements, strict=False):
            count_shown += element is not None
            if not _may_hold(dtype, element):
                refused.append(f"{dtype} as {element}, seed {seed}, {target}:\n{body}")
    return refused, count_shown


@pytest.mark.parametrize("target", ["compute_75", "compute_100"])
@pytest.mark.parametrize("seed", range(3))
def test_no_kernel_refuses_the_type_that_its_source_declares(seed, target):
    refused, count_shown = wrongly_refused(seed, target)
    assert not refused, refused[0]
    assert count_shown > 12


def test_a_comparison_of_signs_that_counts_as_arithmetic_refuses_right_programs(monkeypatch):
    monkeypatch.setattr(element_types, "_is_test_of_bits", untold_never)
    assert any(wrongly_refused(seed, "compute_100")[0] for seed in range(3))
