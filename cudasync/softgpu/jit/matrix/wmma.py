"""Cellar, jit. wmma.load and wmma.store: a matrix between memory and the registers of a warp.

Address and stride are the same in every lane; lane n moves line n. If the order of elements differs
between the lines in memory and the registers (see `matrix_fragments`), a function with a table
permutes them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.addressing.address_spaces import place
from cudasync.softgpu.jit.matrix.fragment_memory import put, stack_memory, take
from cudasync.softgpu.jit.matrix.matrix_rows import first_lanes
from cudasync.softgpu.jit.matrix.strided_lines import StridedLines
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform
from cudasync.softgpu.semantics.matrix_forms import ELEMENT_BITS, Part, part_of
from cudasync.softgpu.semantics.matrix_fragments import LANES, Fragment, fragment_of_part

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


def load(lowering: Lowering, instruction: ir.Instruction) -> None:
    part = _part(lowering, instruction)
    target, source, *stride = instruction.operands
    held = fragment_of_part(part)
    memory = stack_memory(lowering, "lines")
    if lowering.builder.is_silent:
        # The result varies, whatever the address is.
        take(lowering, instruction, target, held, memory)
        return
    with first_lanes(lowering, part.count):
        _lines(lowering, instruction, part, source, stride).load(lowering, instruction, memory)
    order = _order(part)
    if order is not None:
        result = stack_memory(lowering, "result")
        name = f"@cudasync.wmma.load.{part.operand}.{part.type}.{part.layout}.{part.shape}"
        _permute(lowering.builder, name, held, order, result, memory, is_load=True)
        memory = result
    take(lowering, instruction, target, held, memory)


def store(lowering: Lowering, instruction: ir.Instruction) -> None:
    part = _part(lowering, instruction)
    target, source, *stride = instruction.operands
    held = fragment_of_part(part)
    memory = put(lowering, instruction, source, held, "result")
    if lowering.builder.is_silent:
        return
    order = _order(part)
    if order is not None:
        lines = stack_memory(lowering, "lines")
        name = f"@cudasync.wmma.store.{part.type}.{part.layout}.{part.shape}"
        _permute(lowering.builder, name, held, order, lines, memory, is_load=False)
        memory = lines
    with first_lanes(lowering, part.count):
        _lines(lowering, instruction, part, target, stride).store(lowering, instruction, memory)


def _part(lowering: Lowering, instruction: ir.Instruction) -> Part:
    part = part_of(instruction)
    if part is None or not 2 <= len(instruction.operands) <= 3:
        lowering.refuse(instruction)
    return part


def _lines(
    lowering: Lowering,
    instruction: ir.Instruction,
    part: Part,
    operand: ir.Operand,
    stride: list[ir.Operand],
) -> StridedLines:
    """The lines that an address operand and a stride name."""
    builder = lowering.builder
    where = place(lowering, instruction, operand)
    base = _of_first_lane(lowering, where.address)
    if stride:
        elements = _of_first_lane(lowering, lowering.read(stride[0], ScalarType.U32))
        wide = builder.extend(elements, "i64", is_signed=False)
        bits = builder.binary("mul", wide, integer("i64", part.stride_bits))
        apart = builder.binary("lshr", bits, integer("i64", 3))
    else:
        apart = integer("i64", part.line_bytes)
    return StridedLines(part, where, base.text, apart.text)


def _of_first_lane(lowering: Lowering, value: Value) -> Value:
    """The value of the first active lane; PTX requires the same value in all active lanes."""
    if value.is_uniform:
        return value
    builder = lowering.builder
    word = mask_word(builder, lowering.mask)
    first = builder.name(f"call i32 @llvm.cttz.i32(i32 {word}, i1 false)")
    # Without an active lane, `first` would be lane 32, which does not exist.
    first = builder.name(f"and i32 {first}, {LANES - 1}")
    vector = builder.vector_type(value.type)
    return uniform(
        value.type,
        builder.name(f"extractelement {vector} {builder.vector(value)}, i32 {first}"),
    )


@functools.cache
def _order(part: Part) -> list[int] | None:
    """For each element of the registers, its place in the lines; None if the order is the same.

    Elements under a byte are moved in whole words.
    """
    held = fragment_of_part(part)
    positions = held.positions
    width = 1
    if ELEMENT_BITS[part.type] < 8:
        width = held.parts
        positions = positions[::width]
    found = []
    for _, row, column in positions:
        line, along = (row, column) if part.is_by_rows else (column, row)
        found.append((line * part.line + along) // width)
    return None if found == list(range(len(found))) else found


def _permute(
    builder: Builder,
    name: str,
    held: Fragment,
    order: list[int],
    target: str,
    source: str,
    *,
    is_load: bool,
) -> None:
    """Move elements from lines to registers, or back."""
    if name not in builder.functions:
        builder.functions[name] = _permutation(name, held.type, tuple(order), is_load=is_load)
    builder.emit(f"call void {name}(ptr {target}, ptr {source})")


@functools.cache
def _permutation(name: str, element: str, order: tuple[int, ...], *, is_load: bool) -> str:
    """The function that moves elements of a type."""
    bits = ELEMENT_BITS[element]
    type_ = f"i{bits if bits >= 8 else 32}"
    words = ", ".join(f"i16 {each}" for each in order)
    count = len(order)
    held_at, line_at = ("%target", "%source") if is_load else ("%source", "%target")
    move_from, move_to = ("%in.line", "%in.register") if is_load else ("%in.register", "%in.line")
    return f"""
{name}.order = private constant [{count} x i16] [{words}]
define void {name}(ptr %target, ptr %source) {{
entry:
  br label %next
next:
  %index = phi i64 [0, %entry], [%following, %next]
  %entry.at = getelementptr i16, ptr {name}.order, i64 %index
  %short = load i16, ptr %entry.at
  %place = zext i16 %short to i64
  %in.register = getelementptr {type_}, ptr {held_at}, i64 %index
  %in.line = getelementptr {type_}, ptr {line_at}, i64 %place
  %element = load {type_}, ptr {move_from}
  store {type_} %element, ptr {move_to}
  %following = add i64 %index, 1
  %is.more = icmp ult i64 %following, {count}
  br i1 %is.more, label %next, label %done
done:
  ret void
}}
"""
