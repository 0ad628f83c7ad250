"""The floating type that a kernel shows for a parameter's memory: never one too many."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import element_types, parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import ScalarType

CORPUS = Path(__file__).parent / "corpus"
OLD, NEW = ("sm_75", "sm_80", "sm_90"), ("sm_100", "sm_120")
F16, F32, F64 = ScalarType.F16, ScalarType.F32, ScalarType.F64

# For each kernel of corpus/kernels.cu with floats: the types it shows. For newer targets the
# compiler loads everything as `.b32` and `.b64`, so values that a kernel only moves show no type.
COMPILED = {
    "saxpy": ((F32, F32, None, None), (F32, F32, None, None)),
    "block_sum": ((F32, F32, None), (None, F32, None)),
    "matmul": ((F32, F32, F32, None), (None, None, F32, None)),
    "transpose": ((F64, F64, None, None), (None, None, None, None)),
    "sines": ((F64, F64), (F64, None)),
    "many_ways": ((F32, F32, None), (F32, F32, None)),
    "half_scale": ((F16, F16, None), (F16, F16, None)),
    "gather": ((F32, F32, None, None), (F32, F32, None, None)),
    "copy_doubles": ((F64, F64, None, None), (None, None, None, None)),
    "struct_copy": ((F32, None), (F32, None)),
}


@pytest.mark.parametrize("target", OLD + NEW)
def test_a_compiled_kernel_shows_the_floats_of_its_source_and_no_others(target):
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
    "red.global.add.noftz.f16x2 [%d0], %r2;": F16,
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
    # Integers, and bits without any type.
    "ld.global.u32 %r1, [%d0]; cvt.rn.f32.u32 %f1, %r1;",
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
        lambda self, slots, element, see=element_types.ValueTypes._see:
            see(self, slots, element) if element else None,
    ),
    "a vector access is one of its elements": (
        element_types, "_shown",
        lambda flow, access: flow.values.of(access.data) | {access.element or F32},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("where", "name", "wrong"), PLANTED.values(), ids=PLANTED)
def test_the_tables_would_notice_a_rule_that_is_missing(monkeypatch, where, name, wrong):
    monkeypatch.setattr(where, name, wrong)
    expected = {**ONE_TYPE, **dict.fromkeys(NO_TYPE)}
    assert {body: shown(body) for body in expected} != expected
