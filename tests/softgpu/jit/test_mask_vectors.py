"""Integer masks become mask vectors: the same lanes in every form, and never lane by lane."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from helpers.lowering import assembly
from helpers.lowering.jit_launch import compiled, run
from helpers.lowering.native_code import native
from hypothesis import given, settings
from hypothesis import strategies as st

from cudasync.softgpu.jit.kernel_abi.specialisation import Variant
from cudasync.softgpu.jit.machine_code import codegen
from cudasync.softgpu.jit.vector_ir.builder import Builder
from cudasync.softgpu.jit.vector_ir.lane_masks import (
    EVERYBODY,
    NOBODY,
    mask_bits,
    narrow_mask,
    split_mask,
)
from cudasync.softgpu.jit.vector_ir.mask_vectors import definitions, flags_call

WIDTHS = (1, 8, 16, 32)
# Few examples for each of many combinations.
FEW = settings(max_examples=settings.default.max_examples // 5)
LEVELS = ("x86-64-v4", "x86-64-v3", "")
USUAL = Variant(lanes=32, is_rowwise=True, is_whole=True)
# The instructions with which LLVM inserts bits into a vector one by one.
ONE_BY_ONE = re.compile(r"\bvpinsr[bw]\b")
GATHER = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 indices, .param .u64 values, .param .u64 results)
{
    .reg .u32 %thread, %index, %value;
    .reg .u64 %indices, %values, %results, %offset, %at;
    .reg .pred %small;
    ld.param.u64 %indices, [indices];
    ld.param.u64 %values, [values];
    ld.param.u64 %results, [results];
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %at, %indices, %offset;
    ld.global.u32 %index, [%at];
    setp.lt.u32 %small, %index, 64;
    mul.wide.u32 %at, %index, 4;
    add.u64 %at, %at, %values;
    add.u64 %offset, %offset, %results;
    mov.u32 %value, 7;
    @%small ld.global.u32 %value, [%at];
    st.global.u32 [%offset], %value;
    ret;
}
"""


def lanes_function(width: int, level: str):
    """A function that expands an integer's bits to one byte per lane."""
    body = f"""
define void @f(i{width} %bits, ptr %taken) {{
  %flags = {flags_call(width, "%bits")}
  %bytes = zext <{width} x i1> %flags to <{width} x i8>
  store <{width} x i8> %bytes, ptr %taken, align 1
  ret void
}}
"""
    integer = {1: ctypes.c_bool, 8: ctypes.c_uint8, 16: ctypes.c_uint16, 32: ctypes.c_uint32}
    call = native(body, integer[width], ctypes.c_void_p, level=level)

    def lanes(bits: int) -> list[int]:
        taken = np.full(width, 99, np.uint8)
        call(bits, taken.ctypes.data)
        return taken.tolist()

    return lanes


@pytest.fixture(scope="module")
def functions():
    return {(width, level): lanes_function(width, level) for width in WIDTHS for level in LEVELS}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("width", WIDTHS)
@FEW
@given(data=st.data())
def test_lane_by_lane_the_flags_are_the_bits(functions, width, level, data):
    bits = data.draw(st.integers(0, 2**width - 1))
    wanted = [bits >> lane & 1 for lane in range(width)]
    assert functions[width, level](bits) == wanted


def test_a_text_gets_the_functions_that_it_calls_and_no_others():
    calls = [flags_call(16, "%x"), flags_call(32, "%y"), flags_call(16, "%z")]
    text = "\n".join(f"  %{name} = {call}" for name, call in zip("abc", calls, strict=True))
    found = re.findall(r"define internal .* @([\w.]+)\(", definitions(text, "x86-64-v3"))
    assert found == ["cudasync.flags.16", "cudasync.flags.32"]
    assert definitions("call void @cudasync.flags.of.others()", "x86-64-v3") == ""


def test_only_mask_registers_take_a_bitcast():
    text = flags_call(32, " %x").replace("call", "%a = call")
    assert "bitcast" in definitions(text, "x86-64-v4")
    assert "bitcast" not in definitions(text, "x86-64-v3") + definitions(text, "")


def test_a_mask_made_of_an_integer_is_never_made_an_integer_again():
    builder = Builder(32)
    mask = "%mask"
    builder.bits[mask] = "%word"
    taken, other = split_mask(builder, mask, "%flags")
    before = len(builder.lines)
    assert mask_bits(builder, mask) == "%word"
    assert mask_bits(builder, taken) != mask_bits(builder, other)
    assert mask_bits(builder, narrow_mask(builder, taken, "%more")) in builder.lines[-1]
    assert sum("bitcast" in line for line in builder.lines[:before]) == 1
    assert [mask_bits(builder, each) for each in (NOBODY, EVERYBODY)] == ["0", "-1"]


def test_a_mask_of_flags_alone_is_asked_for_its_integer():
    builder = Builder(32)
    taken, _ = split_mask(builder, "%flags", "%others")
    assert not builder.bits
    assert mask_bits(builder, taken) in builder.lines[-1]
    assert f"bitcast <32 x i1> {taken} to i32" in builder.lines[-1]


@pytest.mark.parametrize("memcheck", [False, True])
def test_a_gather_of_some_lanes_is_not_put_together_lane_by_lane(memcheck):
    module = compiled(GATHER, memcheck=memcheck)
    text = module.kernels["test"].text(USUAL)
    shared = codegen._text_of(list(text.functions), text.functions, text.declarations)
    for level in LEVELS[:2]:
        codes = [assembly.assembly(each, level) for each in (text.text, shared)]
        assert any("gather" in code for code in codes)
        assert not ONE_BY_ONE.findall("".join(codes))
    indices = np.random.default_rng(5).permutation(128).astype(np.uint32)
    values, results = np.arange(1000, 1064, dtype=np.uint32), np.zeros(128, np.uint32)
    run(module, "test", 1, 128, indices, values, results)
    assert (results == np.where(indices < 64, 1000 + indices, 7)).all()
