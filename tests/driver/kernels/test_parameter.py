"""Python values as kernel arguments: the accepted values, and their bits."""

from __future__ import annotations

import ctypes
import math
import struct

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given
from hypothesis import strategies as st

from cudasync.driver.arguments.argument_packing import Packing
from cudasync.driver.arguments.parameter import Parameter
from cudasync.ptx.types import Access, ScalarType

INTEGERS = ["u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64"]


def packed(type_, value, size=None):
    """The bytes that the driver would read for one argument, equal the first and the second
    time."""
    scalar = ScalarType(type_)
    parameter = Parameter("x", scalar, size or scalar.size, Access.VALUE, is_array=size is not None)
    packing = Packing("k", [parameter])
    # The first call packs value by value, the second uses the function compiled for its type.
    first, second = (read(packing.take([value]), parameter) for _ in range(2))
    assert first == second
    return first


def read(block, parameter, index=0):
    address = (ctypes.c_void_p * (index + 1)).from_address(block.address)[index]
    return ctypes.string_at(address, parameter.size_bytes)


@given(st.sampled_from(INTEGERS), st.integers(-(1 << 65), 1 << 65))
def test_an_int_is_taken_where_its_bits_fit(type_, value):
    bits = int(type_[1:])
    low = -(1 << bits - 1)
    high = 1 << (bits - 1 if type_[0] == "s" else bits)
    if low <= value < high:
        assert int.from_bytes(packed(type_, value), "little") == value % (1 << bits)
    else:
        with pytest.raises(ValueError, match=r"argument 1 \(.*x\): .* is not in"):
            packed(type_, value)


@given(st.floats())
def test_a_float_becomes_an_f64_as_it_is(value):
    assert packed("f64", value) == struct.pack("<d", value)


@given(st.floats())
def test_a_float_becomes_the_nearest_f32_unless_it_is_too_large(value):
    try:
        expected = struct.pack("<f", value)
    except OverflowError:
        with pytest.raises(ValueError, match="argument 1"):
            packed("f32", value)
    else:
        assert packed("f32", value) == expected


@given(st.floats(width=32))
def test_a_float_becomes_the_nearest_bf16(value):
    (back,) = struct.unpack("<f", b"\0\0" + packed("bf16", value))
    if math.isnan(value):
        assert math.isnan(back)
    elif math.isfinite(value) and math.isfinite(back):
        assert abs(back - value) <= max(abs(value) / 256, 2.0**-134)


SCALARS = [
    np.uint8(200), np.int8(-3), np.bool_(True), np.uint16(60000), np.int16(-3), np.float16(1.5),
    np.uint32(4000000000), np.int32(-3), np.float32(1.5), np.uint64(1 << 63), np.int64(-3),
    np.float64(1.5),
]  # fmt: skip


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("type_", [*INTEGERS, "f16", "f32", "f64"])
def test_a_numpy_scalar_is_taken_where_width_and_kind_match(type_, value):
    width = 8 * value.dtype.itemsize == int(type_[1:])
    is_float = value.dtype.kind == "f"
    if width and (is_float == (type_[0] == "f") or (is_float and type_[0] == "b")):
        assert packed(type_, value) == value.tobytes()
    else:
        with pytest.raises(TypeError, match=r"argument 1 \(.*x\) does not take a numpy\."):
            packed(type_, value)


def test_an_int_is_taken_for_a_float_and_a_bool_for_an_integer():
    assert packed("f32", 3) == struct.pack("<f", 3.0)
    assert packed("u8", True) == b"\1"


@pytest.mark.parametrize("type_", ["u32", "s32", "b32", "u64", "b64"])
def test_a_float_is_not_taken_for_an_integer_or_for_bits(type_):
    with pytest.raises(TypeError, match="argument 1"):
        packed(type_, 1.5)


class Pointer:
    ptr = 0x1234


class Interface:
    __cuda_array_interface__ = {  # noqa: RUF012
        "version": 3, "shape": (2,), "typestr": "<f4", "data": (0x1234, False),
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", [Pointer(), Interface(), driver.CUdeviceptr(0x1234), ctypes.c_void_p(0x1234), 0x1234]
)
@pytest.mark.parametrize("type_", ["u64", "b64", "s64"])
def test_an_address_is_taken_from_what_has_one(type_, value):
    assert packed(type_, value) == struct.pack("<Q", 0x1234)


@pytest.mark.parametrize("value", [Pointer(), Interface(), None, "1", b"12345678", [1]])
@pytest.mark.parametrize("type_", ["u32", "f64"])
def test_what_is_no_number_is_not_taken_for_one(type_, value):
    with pytest.raises(TypeError, match="argument 1"):
        packed(type_, value)


def test_a_host_array_is_not_taken_for_a_pointer_and_the_error_says_what_to_do():
    with pytest.raises(TypeError, match="host memory: copy it to a DeviceBuffer"):
        packed("u64", np.zeros(4))


class Pair(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_float))


@pytest.mark.parametrize(
    "value",
    [
        struct.pack("<if", 3, 1.5),
        Pair(3, 1.5),
        np.array([(3, 1.5)], dtype="i4, f4"),
        np.array([(3, 1.5)], dtype="i4, f4")[0],
    ],
)
def test_a_struct_takes_bytes_of_its_size(value):
    assert packed("b8", value, size=8) == struct.pack("<if", 3, 1.5)


def test_a_struct_does_not_take_bytes_of_another_size_or_numbers():
    with pytest.raises(ValueError, match="the value has 7 bytes, the parameter 8"):
        packed("b8", bytes(7), size=8)
    with pytest.raises(TypeError, match="argument 1"):
        packed("b8", 7, size=8)


def test_every_argument_is_aligned_to_its_size():
    types = ["u8", "u64", "u16", "f64", "u8", "u32"]
    parameters = [
        Parameter(name, ScalarType(name), ScalarType(name).size, Access.VALUE) for name in types
    ]
    block = Packing("k", parameters).take([1, 2, 3, 4.0, 5, 6])
    pointers = (ctypes.c_void_p * len(types)).from_address(block.address)
    assert all(p % q.size_bytes == 0 for p, q in zip(pointers, parameters, strict=True))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, -1, 1 << 31, 7.5, Pointer(), Interface(), *SCALARS]),
            st.sampled_from([np.int32(-5), np.uint32(5), 5, -5, True]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_arguments_of_changing_types_are_packed_as_by_a_kernel_that_never_saw_others(pairs):
    parameters = [
        Parameter("x", ScalarType.B64, 8, Access.VALUE),
        Parameter("y", ScalarType.U32, 4, Access.VALUE),
    ]
    seasoned = Packing("k", parameters)

    def outcome(packing, pair):
        try:
            block = packing.take(pair)
        except (TypeError, ValueError) as error:
            return str(error)
        return [read(block, parameter, i) for i, parameter in enumerate(parameters)]

    for pair in pairs:
        assert outcome(seasoned, pair) == outcome(Packing("k", parameters), pair)


def test_a_value_out_of_range_is_refused_after_others_of_its_type_were_packed():
    packing = Packing("k", [Parameter("x", ScalarType.U8, 1, Access.VALUE)])
    for value in (1, 255, -128):
        packing.take([value])
    with pytest.raises(ValueError, match=r"argument 1 .*: 256 is not in \[-128, 256\)"):
        packing.take([256])
    with pytest.raises(TypeError, match="takes 1 arguments, not 2"):
        packing.take([1, 1])
    assert read(packing.take([7]), Parameter("x", ScalarType.U8, 1, Access.VALUE)) == b"\7"


def test_a_kernel_remembers_a_bounded_number_of_combinations_of_types():
    parameter = Parameter("x", ScalarType.U64, 8, Access.VALUE)
    packing = Packing("k", [parameter])
    for number in range(200):
        pointer = type("Pointer", (), {"ptr": number})()
        assert read(packing.take([pointer]), parameter) == struct.pack("<Q", number)
    assert len(packing.packers) < 100


def test_blocks_are_reused_but_never_by_two_at_once():
    packing = Packing("k", [Parameter("x", ScalarType.U32, 4, Access.VALUE)])
    first, second = packing.take([1]), packing.take([2])
    assert first is not second
    packing.give(first)
    assert packing.take([3]) is first
