"""Code that LLVM would scalarise lane by lane is written so that LLVM keeps vectors.

A vector built from scalars shows in the assembly, which inserts each of them.
"""

from __future__ import annotations

import re

import pytest
from helpers.lowering import assembly
from helpers.lowering.isa_cases import ISA
from helpers.lowering.jit_launch import compiled

from cudasync.softgpu.jit.kernel_abi.specialisation import Variant
from cudasync.softgpu.jit.machine_code import codegen

USUAL = Variant(lanes=32, is_rowwise=True, is_whole=True)
ONE_LANE = re.compile(r"\bvp?(?:insr|extr|insert)[bwdqps]+\b")
# Files in which no lane needs scalar work.
WHOLE = [
    "cvt_words_from_f32",
    "cvt_words_from_f64",
    "cvt_small_from_f32",
    "cvt_small_from_f16",
    "ex2_approx_f32",
    "sin_approx_f32",
    "tanh_approx_f32",
    "arithmetic_f16x2",
    "min_max_f16",
]


def one_lane_at_a_time(name: str, level: str) -> list[str]:
    """The instructions that insert a scalar into a vector or extract it."""
    module = compiled((ISA / f"{name}.ptx").read_text(), memcheck=False)
    codes = []
    for kernel in module.kernels.values():
        text = kernel.text(USUAL)
        shared = codegen._text_of(list(text.functions), text.functions, text.declarations)
        codes += [assembly.assembly(each, level) for each in (text.text, shared)]
    return ONE_LANE.findall("".join(codes))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3"])
@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_done_lane_by_lane(name, level):
    assert one_lane_at_a_time(name, level) == []


def test_a_division_of_64_bits_is_seen_to_be():
    assert len(one_lane_at_a_time("div_rem_u64", "x86-64-v3")) >= 32
