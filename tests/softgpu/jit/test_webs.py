"""Each web of a register gets its own register, and one web keeps the name."""

from __future__ import annotations

import pytest
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.ptx.liveness import defs, uses
from cudasync.softgpu.jit.transforms.webs import split_webs

AGAIN = "mov.b32 %r1, 1; mov.b32 %r2, %r1; mov.b32 %r1, 2; mov.b32 %r3, %r1;"
# Read before its definition, so the value is zero there. The second definition is another web.
GUARDED = "@%p1 mov.b32 %r1, 1; mov.b32 %r2, %r1; mov.b32 %r1, 2; mov.b32 %r3, %r1;"
UNDEFINED = "mov.b32 %r2, %r1; mov.b32 %r1, 1; mov.b32 %r1, 2; mov.b32 %r3, %r1;"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (AGAIN, ["%r1", "%r1", "%r1.1", "%r1.1"]),
        (GUARDED, ["%r1", "%r1", "%r1.1", "%r1.1"]),
        (UNDEFINED, ["%r1", "%r1", "%r1.1", "%r1.1"]),
        ("mov.b32 %r1, 1; mov.b32 %r2, %r1;", ["%r1", "%r1"]),
        ("mov.b32 %r1, 1; add.s32 %r1, %r1, 1; add.s32 %r2, %r1, 1;", ["%r1", "%r1.1", "%r1.1"]),
    ],
)
def test_a_register_has_as_many_names_as_webs(body, expected):
    function = split_webs(parse(kernel(body)).function("k"))
    named = [
        # The register that the step defines, or else the one it uses.
        next(name for each in (*defs(step), *uses(step)) if (name := each.name).startswith("%r1"))
        for step in function.body
    ]
    assert named == expected
    assert set(expected) <= set(function.registers)


def test_what_is_read_and_written_by_one_instruction_has_two_names():
    body = "mov.b32 %r1, 1; add.s32 %r1, %r1, 1; add.s32 %r2, %r1, 1;"
    step = split_webs(parse(kernel(body)).function("k")).body[1]
    assert [each.name for each in (*defs(step), *uses(step))] == ["%r1.1", "%r1"]


def test_a_function_without_such_registers_stays_as_it_is():
    function = parse(kernel("mov.b32 %r1, 1; mov.b32 %r2, %r1;")).function("k")
    assert split_webs(function) is function
