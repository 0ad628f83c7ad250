"""Conversions of floats to integers: clamped, truncated, and never lane by lane."""

from __future__ import annotations

import ctypes
import functools
import math
import re

import numpy as np
import pytest
from helpers.lowering import assembly
from helpers.lowering.native_code import native, of_arrays
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cudasync.softgpu.jit.arithmetic.float_to_integer import to_integer
from cudasync.softgpu.jit.vector_ir.builder import Builder
from cudasync.softgpu.jit.vector_ir.values import uniform, varying

LANES = 32
# Few examples for each of many combinations.
FEW = settings(max_examples=settings.default.max_examples // 5)
FLOATS = {"float": np.float32, "double": np.float64}
TYPES = [(f"i{bits}", is_signed) for bits in (8, 16, 32, 64) for is_signed in (True, False)]
# Without a vector conversion to 64 bits, LLVM has no choice.
LANE_BY_LANE = re.compile(r"\bv?cvtts[sd]2s?u?si")


def dtype_of(type_: str, is_signed: bool) -> np.dtype:
    return np.dtype(f"{'i' if is_signed else 'u'}{int(type_[1:]) // 8}")


def text_of(source: str, type_: str, is_signed: bool, nan: int, *, is_scalar: bool = False) -> str:
    builder = Builder(LANES)
    what = source if is_scalar else builder.vector_type(source)
    found = builder.name(f"load {what}, ptr %given, align 8")
    value = (uniform if is_scalar else varying)(source, found)
    result = builder.vector(to_integer(builder, value, type_, is_signed=is_signed, nan=nan))
    builder.emit(f"store {builder.vector_type(type_)} {result}, ptr %taken, align 8")
    return of_arrays(builder)


@functools.cache
def function_of(source: str, type_: str, is_signed: bool, nan: int, is_scalar: bool):
    text = text_of(source, type_, is_signed, nan, is_scalar=is_scalar)
    return native(text, ctypes.c_void_p, ctypes.c_void_p)


def converted(source: str, type_: str, is_signed: bool, nan: int, given: np.ndarray) -> list[int]:
    """The result of vectors, after a check that scalars give the same."""
    taken = np.zeros(LANES, dtype_of(type_, is_signed))
    call = function_of(source, type_, is_signed, nan, False)
    call(given.ctypes.data, taken.ctypes.data)
    first = np.zeros_like(taken)
    call = function_of(source, type_, is_signed, nan, True)
    call(given.ctypes.data, first.ctypes.data)
    assert set(first.tolist()) == {taken[0].item()}
    return taken.tolist()


def wanted(value: float, dtype: np.dtype, nan: int) -> int:
    limits = np.iinfo(dtype)
    if math.isnan(value):
        return np.array([nan], np.uint64).astype(dtype)[0].item()
    if math.isinf(value):
        return limits.max if value > 0 else limits.min
    return max(limits.min, min(limits.max, int(value)))


def around(power: int) -> list[float]:
    """Floats around 2**power of either sign, in single and in double precision."""
    size = 2.0**power
    near = [size, size - 1, size - 0.5, size + 1]
    near += [float(np.nextafter(np.float32(size), np.float32(to))) for to in (0, np.inf)]
    near += [float(np.nextafter(size, to)) for to in (0, math.inf)]
    return near + [-each for each in near]


EDGES = [each for power in (0, 7, 8, 15, 16, 24, 31, 32, 53, 63, 64) for each in around(power)]
EDGES += [0.0, -0.0, 0.5, -0.5, math.inf, -math.inf, math.nan]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("nan", [0, "highest"])
@pytest.mark.parametrize(("type_", "is_signed"), TYPES)
@pytest.mark.parametrize("source", FLOATS)
@FEW
@example(EDGES)
@given(st.lists(st.floats(width=32) | st.floats() | st.sampled_from(EDGES), min_size=1))
def test_a_float_becomes_the_nearest_integer_towards_zero(source, type_, is_signed, nan, values):
    nan = 1 << (int(type_[1:]) - 1) if nan else 0
    dtype = dtype_of(type_, is_signed)
    with np.errstate(over="ignore"):
        given = np.array(values).astype(FLOATS[source])
    for start in range(0, given.size, LANES):
        some = np.resize(given[start : start + LANES], LANES)
        found = converted(source, type_, is_signed, nan, some)
        assert found == [wanted(each, dtype, nan) for each in some.tolist()]


@pytest.mark.parametrize(("type_", "is_signed"), TYPES)
@pytest.mark.parametrize("source", FLOATS)
def test_it_is_done_for_all_lanes_at_once(source, type_, is_signed):
    levels = ["x86-64-v4"] if type_ == "i64" else ["x86-64-v4", "x86-64-v3"]
    for level in levels:
        code = assembly.assembly(text_of(source, type_, is_signed, 0), level)
        assert "vcvttp" in code
        assert not LANE_BY_LANE.search(code)


def test_the_intrinsic_is_known_to_go_lane_by_lane():
    text = """
declare <32 x i32> @llvm.fptosi.sat.v32i32.v32f32(<32 x float>)
define void @f(ptr %given, ptr %taken) {
  %value = load <32 x float>, ptr %given
  %result = call <32 x i32> @llvm.fptosi.sat.v32i32.v32f32(<32 x float> %value)
  store <32 x i32> %result, ptr %taken
  ret void
}
"""
    assert LANE_BY_LANE.search(assembly.assembly(text, "x86-64-v3"))
