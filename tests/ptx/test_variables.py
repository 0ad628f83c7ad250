"""Variables: sizes, alignment, initial values, and the layout of several variables."""

from __future__ import annotations

import pytest
from helpers.ptx_generators.kernel_frame import HEAD, kernel

from cudasync.ptx import ir, parse
from cudasync.ptx.layout import layout
from cudasync.ptx.types import ScalarType, StateSpace


def variable(text):
    (found,) = parse(HEAD + text).variables
    return found


def values(text):
    return [each.value for each in variable(text).initial]


def test_a_variable_knows_its_space_type_and_size():
    found = variable(".global .align 8 .b8 buffer[24];")
    assert (found.name, found.space, found.type) == ("buffer", StateSpace.GLOBAL, ScalarType.B8)
    assert (found.count, found.size, found.align, found.is_array) == (24, 24, 8, True)


def test_alignment_is_natural_unless_given():
    assert variable(".global .f64 x;").align == 8
    assert variable(".global .v4 .f32 x;").align == 16


def test_a_vector_counts_its_scalars():
    found = variable(".global .v4 .f32 x[3];")
    assert (found.count, found.size) == (12, 48)


def test_an_extern_array_has_no_size():
    found = variable(".extern .shared .align 16 .b8 dynamic[];")
    assert (found.is_extern, found.is_array, found.size) == (True, True, 0)
    assert found.space is StateSpace.SHARED


def test_an_unsized_array_is_as_long_as_its_values():
    assert variable(".const .u32 x[] = {1, 2, 3};").count == 3
    assert variable(".const .u32 x[][2] = {{1, 2}, {3}};").count == 4


def test_rows_that_are_cut_short_are_filled_with_zeros():
    assert values(".global .u32 x[2][3] = {{1, 2}, {3}};") == [1, 2, 0, 3]
    assert values(".global .u32 x[2][3] = {1, 2, 3, 4};") == [1, 2, 3, 4]
    assert values(".global .s32 x = -1;") == [-1]


def test_decimal_floats_take_the_width_of_what_they_initialise():
    assert variable(".const .f32 x = -1.5;").initial == (ir.Float(0xBFC00000, ScalarType.F32),)
    assert variable(".const .f32 x = 1e300;").initial == (ir.Float(0x7F800000, ScalarType.F32),)
    assert variable(".const .f64 x = 0.5;").initial == (
        ir.Float(0x3FE0000000000000, ScalarType.F64),
    )


def test_an_address_is_an_initial_value():
    module = parse(f"{HEAD}.global .u32 x[4]; .global .u64 p[2] = {{generic(x)+12, x}};")
    assert module.variables[1].initial == (
        ir.SymbolAddress("x", 12, True),
        ir.SymbolAddress("x", 0, False),
    )


def test_some_bits_of_an_address_are_an_initial_value():
    """PTX ISA, "Initializers": a mask of ones picks a byte of the address."""
    text = ".global .u32 x[4]; .global .u8 p[3] = {0xFF(x), 0xFF00(x+4), 0xFF0000(generic(x))};"
    found = parse(f"{HEAD}{text}").variables[1].initial
    assert [(each.mask, each.offset) for each in found] == [(0xFF, 0), (0xFF00, 4), (0xFF0000, 0)]
    assert [each.bits(0x123456) for each in found] == [0x56, 0x34, 0x12]


def test_a_declaration_lists_several_variables():
    module = parse(f"{HEAD}.global .u32 x, y[2];")
    assert [(each.name, each.size) for each in module.variables] == [("x", 4), ("y", 8)]


def test_a_definition_completes_an_extern_declaration():
    found = variable(".extern .global .u32 x[]; .visible .global .u32 x[4];")
    assert (found.is_extern, found.size) == (False, 16)


def test_a_pointer_parameter_may_say_what_it_points_at():
    parameters = ".param .u64 .ptr .global .align 16 x, .param .u64 .ptr .align 1 y"
    function = parse(kernel("ret;", parameters=parameters)).function("k")
    assert [(each.name, each.size, each.align) for each in function.parameters] == [
        ("x", 8, 8),
        ("y", 8, 8),
    ]


@pytest.mark.parametrize(
    ("parameters", "offsets", "size"),
    [
        ("", {}, 0),
        (".param .u8 a, .param .u64 b, .param .u16 c", {"a": 0, "b": 8, "c": 16}, 18),
        (".param .align 16 .b8 a[3], .param .u32 b", {"a": 0, "b": 4}, 8),
        (".param .u32 a, .param .align 16 .b8 b[20]", {"a": 0, "b": 16}, 36),
    ],
)
def test_variables_lie_as_the_members_of_a_c_struct_do(parameters, offsets, size):
    function = parse(kernel("ret;", parameters=parameters)).function("k")
    assert layout(function.parameters) == (offsets, size)
