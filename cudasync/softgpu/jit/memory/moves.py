"""Cellar, jit. mov with packing and unpacking, cvta, and isspacep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Symbol, Vector
from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.jit.addressing.address_spaces import slab_base
from cudasync.softgpu.jit.kernel_abi.job_record import Field, read_field
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def _move(lowering: Lowering, instruction: ir.Instruction) -> None:
    target, source = instruction.operands[0], instruction.operands[1]
    if isinstance(source, Vector):
        lowering.write(target, _packed(lowering, instruction, source))
    elif isinstance(target, Vector):
        _unpack(lowering, instruction, target, source)
    else:
        lowering.write(target, lowering.read(source, instruction.type))


def _packed(lowering: Lowering, instruction: ir.Instruction, source: Vector) -> Value:
    """The elements adjacent in one wide integer, the first lowest."""
    builder = lowering.builder
    bits = instruction.type.bits
    width = bits // len(source.elements)
    element_type = ScalarType(f"b{width}")
    result = integer(f"i{bits}", 0)
    for place, element in enumerate(source.elements):
        value = lowering.read(element, element_type)
        wide = builder.flat(builder.extend(value, f"i{bits}", is_signed=False))
        if place:
            wide = builder.binary("shl", wide, integer(wide.type, place * width))
        result = wide if not place else builder.binary("or", result, wide)
    return result


def _unpack(
    lowering: Lowering, instruction: ir.Instruction, target: Vector, source: ir.Operand
) -> None:
    builder = lowering.builder
    bits = instruction.type.bits
    width = bits // len(target.elements)
    value = builder.flat(lowering.read(source, ScalarType(f"b{bits}")))
    for place, element in enumerate(target.elements):
        moved = value
        if place:
            moved = builder.binary("lshr", value, integer(value.type, place * width))
        lowering.write(element, builder.truncate(moved, f"i{width}"))


def window_base(lowering: Lowering, space: StateSpace) -> Value | None:
    """The base that makes an address of `space` generic; None if it already is generic."""
    match space:
        case StateSpace.SHARED:
            return uniform("i64", "%shared.address")
        case StateSpace.LOCAL:
            return slab_base(lowering)
        case StateSpace.PARAM:
            if not lowering.is_kernel:
                return slab_base(lowering)
            return uniform("i64", "%parameters.address")
        case _:
            return None


def _convert_address(lowering: Lowering, instruction: ir.Instruction) -> None:
    """cvta: between a window's offsets and generic addresses, which are host addresses."""
    builder = lowering.builder
    source = instruction.operands[1]
    space = instruction.space
    value = lowering.read(source, instruction.type)
    if isinstance(source, Symbol) and lowering.space_of(source.name) is not space:
        lowering.refuse(instruction, f"{source.name} is not a variable of .{space.value}")
    base = window_base(lowering, space)
    if base is not None:
        if value.type != "i64":
            lowering.refuse(instruction)
        if "to" in instruction.modifiers:
            value = builder.subtract(value, base)
        else:
            value = builder.add(value, base)
    lowering.write(instruction.operands[0], value)


def _is_space(lowering: Lowering, instruction: ir.Instruction) -> None:
    """isspacep: whether a generic address lies in a window; global is outside all windows."""
    builder = lowering.builder
    address = lowering.read(instruction.operands[1], ScalarType.B64)
    shared = _lies_in(lowering, address, Field.SHARED, Field.SHARED_BYTES)
    local = _lies_in(lowering, address, Field.LOCAL, Field.LOCAL_BYTES)
    parameters = _lies_in(lowering, address, Field.PARAMETERS, Field.PARAMETER_BYTES)
    match instruction.space:
        case StateSpace.SHARED:
            flag = shared
        case StateSpace.LOCAL:
            flag = local
        case StateSpace.PARAM:
            flag = parameters
        case StateSpace.GLOBAL:
            anywhere = builder.binary("or", builder.binary("or", shared, local), parameters)
            flag = lowering.negate(anywhere)
        case _:
            lowering.refuse(instruction)
    lowering.write(instruction.operands[0], flag)


def _lies_in(lowering: Lowering, address: Value, start: Field, length: Field) -> Value:
    builder = lowering.builder
    offset = builder.subtract(address, uniform("i64", read_field(builder, start)))
    return builder.compare("icmp ult", offset, uniform("i64", read_field(builder, length)))


def _nothing(_lowering: Lowering, _instruction: ir.Instruction) -> None:
    """Advice to a cache, which is ignored."""


EMITTERS: dict[str, Emitter] = {
    "mov": _move,
    "cvta": _convert_address,
    "isspacep": _is_space,
    "prefetch": _nothing,
    "prefetchu": _nothing,
    "applypriority": _nothing,
    "pmevent": _nothing,
}
