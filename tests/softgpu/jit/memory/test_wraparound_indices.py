"""64-bit indices that may be negative: additions to them, and their bounds checks."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from helpers.lowering.jit_launch import compiled, fault_of, run
from helpers.lowering.native_code import native_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cudasync.softgpu.jit.arithmetic.bitwise import shifted
from cudasync.softgpu.jit.arithmetic.compare_narrowing import compare_narrow
from cudasync.softgpu.jit.kernel_abi.specialisation import Variant
from cudasync.softgpu.jit.vector_ir.builder import Builder
from cudasync.softgpu.jit.vector_ir.uniformity import Kind, affine, wide
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform, varying
from cudasync.softgpu.jit.vector_ir.wraparound_indices import in_lanes, is_alone

LANES = 32
# Few examples for each of many combinations.
FEW = settings(max_examples=settings.default.max_examples // 5)
STRIDES = (1, -1, 3, 1 << 27, 0)  # The index's stride from lane to lane; 0 for a varying index.
SCALES = (1, 4, -8)
RELATIONS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
USUAL = Variant(lanes=32, is_rowwise=True, is_whole=True)

edges = [0, 1, 31, 40, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 61, 1 << 62, 1 << 63]
longs = st.sampled_from([n for each in edges for n in (each, -each, each - 1, 1 - each)])
longs = (longs | st.integers(-(1 << 63), (1 << 63) - 1)).map(lambda n: n % (1 << 64))
words = st.sampled_from([0, 1, 5, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 9]) | st.integers(
    0, 2**32 - 1
)


def wide_value(builder: Builder, stride: int, scale: int, is_signed: bool) -> Value:
    """Load from `%given`: the base, one more number, and 32 indices (or the first, if they are
    affine)."""
    base = builder.name("load i64, ptr %given")
    at = builder.name("getelementptr i8, ptr %given, i64 16")
    index = varying("i32", "%none") if not stride else Value("i32", "%none", affine(stride, 32))
    type_ = "i32" if stride else builder.vector_type("i32")
    text = builder.name(f"load {type_}, ptr {at}, align 8")
    shape = wide(index.shape, scale=scale, is_signed=is_signed)
    return Value("i64", base, shape, index=text)


def number(builder: Builder) -> Value:
    at = builder.name("getelementptr i8, ptr %given, i64 8")
    return uniform("i64", builder.name(f"load i64, ptr {at}"))


def given_of(base: int, more: int, indices: list[int]) -> np.ndarray:
    found = np.zeros(18, np.uint64)
    found[:2] = base, more
    found[2:].view(np.uint32)[:] = np.resize(np.array(indices, np.uint32), LANES)
    return found


def lanes_of(given: np.ndarray, stride: int, scale: int, is_signed: bool) -> np.ndarray:
    """The same value in each lane, as 64-bit integers that wrap around."""
    index = given[2:].view(np.uint32)
    if stride:
        index = (index[0] + np.arange(LANES) * stride).astype(np.uint32)
    wide_index = index.view(np.int32).astype(np.int64) if is_signed else index.astype(np.int64)
    return given[:1].view(np.int64) + wide_index * scale


def called(function, given: np.ndarray, dtype) -> np.ndarray:
    taken = np.zeros(LANES, dtype)
    function(given.ctypes.data, taken.ctypes.data)
    return taken


@functools.cache
def wrapped_function(stride: int, scale: int, is_signed: bool):
    """((x + (number & x >> 63)) * 4 + number), after a check that the index and the place are
    LIFTED."""
    builder = Builder(LANES)
    value, size = wide_value(builder, stride, scale, is_signed), number(builder)
    sign = shifted(builder, "ashr", value, integer("i32", 63))
    assert is_alone(sign)
    more = in_lanes(sign, lambda amount: builder.binary("and", amount, size))
    index = builder.add(more, value)
    place = builder.add(size, builder.shift_left(index, 2))
    assert index.shape.kind is place.shape.kind is Kind.LIFTED
    vector = builder.vector_type("i64")
    builder.emit(f"store {vector} {builder.vector(place)}, ptr %taken, align 8")
    return native_of(builder)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_signed", [True, False])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("stride", STRIDES)
@FEW
@example(base=(1 << 64) - 5, more=512, indices=[0])
@example(base=0, more=512, indices=[2**31 - 9])
@given(base=longs, more=longs, indices=st.lists(words, min_size=1, max_size=LANES))
def test_a_negative_index_counts_from_the_end(stride, scale, is_signed, base, more, indices):
    given = given_of(base, more, indices)
    with np.errstate(over="ignore"):
        x = lanes_of(given, stride, scale, is_signed)
        size = given[1:2].view(np.int64)
        wanted = (x + np.where(x < 0, size, 0)) * 4 + size
    found = called(wrapped_function(stride, scale, is_signed), given, np.int64)
    assert (found == wanted).all()


@functools.cache
def comparing_function(relation: str, stride: int, is_signed: bool, extends: bool, is_second: bool):
    builder = Builder(LANES)
    both = [wide_value(builder, stride, 1, extends), number(builder)]
    if is_second:
        both.reverse()
    flags = compare_narrow(builder, relation, *both, is_signed=is_signed)
    assert flags is not None
    vector = builder.vector_type("i8")
    flags_type = builder.vector_type("i1")
    bytes_ = builder.name(f"zext {flags_type} {flags.text} to {vector}")
    builder.emit(f"store {vector} {bytes_}, ptr %taken, align 1")
    return native_of(builder)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("is_signed", "extends"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("stride", [1, -1, 0])
@pytest.mark.parametrize("relation", RELATIONS)
@FEW
@example(base=0, distance=2**31 - 1, indices=[2**31 - 1, 2**31, 0], is_second=False)
@example(base=0, distance=2**31, indices=[2**31 - 1, 2**31, 0], is_second=False)
@example(base=0, distance=-(2**31), indices=[2**31, 2**31 + 1, 0], is_second=False)
@example(base=7, distance=2**32, indices=[2**32 - 1, 1], is_second=True)
@given(
    base=longs,
    distance=st.integers(-(2**33), 2**33) | st.sampled_from(edges),
    indices=st.lists(words, min_size=1, max_size=LANES),
    is_second=st.booleans(),
)
def test_an_index_is_held_to_a_bound(
    relation, stride, is_signed, extends, base, distance, indices, is_second
):
    given = given_of(base, (base + distance) % (1 << 64), indices)
    with np.errstate(over="ignore"):
        x = lanes_of(given, stride, 1, extends)
    type_ = np.int64 if is_signed else np.uint64
    both = [x.view(type_), given[1:2].view(type_)]
    function = comparing_function(relation, stride, is_signed, extends, is_second)
    wanted = RELATIONS[relation](*(reversed(both) if is_second else both))
    assert (called(function, given, np.uint8) == wanted).all()


def test_what_is_no_such_question_is_not_answered():
    builder = Builder(LANES)
    plain, bound = wide_value(builder, 1, 1, True), number(builder)
    before = len(builder.lines)
    for relation, first, second, is_signed in [
        ("eq", plain, bound, True),
        ("lt", plain, plain, True),
        ("lt", bound, bound, True),
        ("lt", wide_value(builder, 1, 4, True), bound, True),
        ("lt", plain, bound, False),
    ]:
        assert compare_narrow(builder, relation, first, second, is_signed=is_signed) is None
    assert not any("br " in line for line in builder.lines[before:])


def kernel(between: str, moves: str) -> str:
    """A kernel: target[tid] = source[x] for x = tid - `from`, or target[x] = source[tid]."""
    other = "target" if moves == "source" else "source"
    return f"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(
    .param .u64 source, .param .u64 target, .param .u64 size, .param .u32 from)
{{
    .reg .u32 %t, %from, %value;
    .reg .u64 %source, %target, %size, %x, %sign, %offset, %place;
    ld.param.u64 %source, [source];
    ld.param.u64 %target, [target];
    ld.param.u64 %size, [size];
    ld.param.u32 %from, [from];
    mov.u32 %t, %tid.x;
    sub.s32 %value, %t, %from;
    cvt.s64.s32 %x, %value;
    shr.s64 %sign, %x, 63;
    and.b64 %sign, %sign, %size;
    add.s64 %x, %sign, %x;
    {between}
    shl.b64 %offset, %x, 2;
    mul.wide.u32 %place, %t, 4;
    add.s64 %{moves}, %{moves}, %offset;
    add.s64 %{other}, %{other}, %place;
    ld.global.u32 %value, [%source];
    st.global.u32 [%target], %value;
    ret;
}}
"""


# The code between the index and its use: nothing, a barrier that the index must survive, a branch.
BETWEEN = {
    "nothing": "",
    "a barrier": "bar.sync 0;",
    "a loop": """mov.u32 %from, 3;
again:
    bar.sync 0;
    sub.u32 %from, %from, 1;
    { .reg .pred %more; setp.ne.u32 %more, %from, 0; @%more bra again; }""",
}


@pytest.mark.parametrize("memcheck", [True, False])
@pytest.mark.parametrize("moves", ["source", "target"])
@pytest.mark.parametrize("between", BETWEEN)
def test_lanes_before_the_beginning_are_at_the_end(between, moves, memcheck):
    module = compiled(kernel(BETWEEN[between], moves), memcheck=memcheck)
    threads = 128
    for distance in (0, 1, 32, 33, 70, 128):
        source = np.arange(100, 100 + threads, dtype=np.uint32)
        target = np.zeros(threads, np.uint32)
        run(module, "test", 1, threads, source, target, threads, distance)
        back = distance if moves == "source" else -distance
        assert (target == np.roll(source, back)).all()


@pytest.mark.parametrize("moves", ["source", "target"])
def test_a_lane_that_is_lifted_out_of_the_array_is_named(moves):
    module = compiled(kernel("", moves))
    arrays = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    fault = fault_of(module, "test", 1, 64, *arrays, 1 << 40, 3)
    assert fault.threads == ((0, 0, 0), (1, 0, 0), (2, 0, 0))


# In shared and local memory: the sign bit, shifted right, wraps a negative index around a size that
# is a power of two.
OWN = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 target, .param .u32 from)
{
    .SPACE .align 4 .b8 memory[512];
    .reg .u32 %t, %from, %sign, %value;
    .reg .u64 %target, %x, %wrap, %place, %base;
    ld.param.u64 %target, [target];
    ld.param.u32 %from, [from];
    mov.u32 %t, %tid.x;
    sub.s32 %value, %t, %from;
    and.b32 %sign, %value, -2147483648;
    shr.u32 %sign, %sign, 24;
    cvt.u64.u32 %wrap, %sign;
    cvt.s64.s32 %x, %value;
    add.s64 %x, %wrap, %x;
    shl.b64 %x, %x, 2;
    mov.u64 %base, memory;
    add.s64 %place, %base, %x;
    st.SPACE.u32 [%place], %t;
    bar.sync 0;
    ld.SPACE.u32 %value, [%place];
    add.u32 %value, %value, 1000;
    st.SPACE.u32 [%place], %value;
    bar.sync 0;
    HERE
    ld.SPACE.u32 %value, [%place];
    mul.wide.u32 %place, %t, 4;
    add.s64 %target, %target, %place;
    st.global.u32 [%target], %value;
    ret;
}
"""


@pytest.mark.parametrize("memcheck", [True, False])
def test_shared_memory_is_counted_from_the_end(memcheck):
    text = OWN.replace("SPACE", "shared").replace(
        "HERE", "mul.wide.u32 %place, %t, 4; add.s64 %place, %place, %base;"
    )
    module = compiled(text, memcheck=memcheck)
    for distance in (0, 3, 32, 100):
        target = np.zeros(128, np.uint32)
        run(module, "test", 1, 128, target, distance)
        assert (target == 1000 + (np.arange(128) + distance) % 128).all()


@pytest.mark.parametrize("memcheck", [True, False])
def test_a_thread_s_own_memory_is_counted_from_the_end(memcheck):
    module = compiled(OWN.replace("SPACE", "local").replace("HERE", ""), memcheck=memcheck)
    target = np.zeros(128, np.uint32)
    run(module, "test", 1, 128, target, 50)
    assert (target == 1000 + np.arange(128)).all()


def test_lanes_in_line_are_moved_at_once():
    text = compiled(kernel("", "source"), memcheck=False).kernels["test"].text(USUAL).text
    plain = text.index("\nplain.")
    apart = text.index("\napart.")
    assert "load <32 x i32>, ptr" in text[plain:apart]
    assert "call i1 @cudasync.load.lifted." not in text[:apart]
    assert "call i1 @cudasync.load.lifted." in text[apart:]
    assert not re.search(r"call .*gather", text)
