"""Cellar, jit. What lanes of a warp tell each other: shfl, vote, activemask, match, redux.

A warp runs in lockstep, so its lanes meet by being here: the member mask of the .sync forms
counts only in that lanes outside of it take no part. Lanes that are not active hold stale
values; reading theirs is undefined in PTX, and gives those here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Pair
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.faults import mask_word
from cudasync.softgpu.jit.shapes import affine
from cudasync.softgpu.jit.values import Value, integer, uniform, varying

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.lowering import Emitter, Lowering


def _shuffle(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    mode = next((m for m in instruction.modifiers if m in ("up", "down", "bfly", "idx")), None)
    if mode is None:
        lowering.refuse(instruction)
    value = builder.varying(lowering.read(instruction.operands[1], ScalarType.B32))
    offset = lowering.read(instruction.operands[2], ScalarType.U32)
    control = lowering.read(instruction.operands[3], ScalarType.U32)
    target = instruction.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
    if offset.literal is not None and control.literal is not None:
        result, flags = _fixed(lowering, mode, value, offset.literal, control.literal)
    else:
        result, flags = _computed(lowering, mode, value, offset, control)
    lowering.write(first, result)
    if second is not None:
        lowering.write(second, flags)


def _source(mode: str, lane: int, offset: int, control: int) -> tuple[int, bool]:
    """The lane that `lane` reads, and whether that lies in its segment (PTX ISA, shfl)."""
    offset &= 31
    bound, segment = control & 31, control >> 8 & 31
    most = (lane & segment) | (bound & ~segment)
    least = lane & segment
    match mode:
        case "up":
            found, is_inside = lane - offset, lane - offset >= most
        case "down":
            found, is_inside = lane + offset, lane + offset <= most
        case "bfly":
            found, is_inside = lane ^ offset, lane ^ offset <= most
        case _:
            found = least | (offset & ~segment & 31)
            is_inside = found <= most
    return (found, True) if is_inside else (lane, False)


def _fixed(
    lowering: Lowering, mode: str, value: Value, offset: int, control: int
) -> tuple[Value, Value]:
    """With constant operands a shuffle is a constant permutation."""
    builder = lowering.builder
    sources = [_source(mode, lane, offset, control) for lane in range(builder.lanes)]
    order = ", ".join(f"i32 {source}" for source, _ in sources)
    flags = ", ".join(f"i1 {'true' if inside else 'false'}" for _, inside in sources)
    vector = builder.vector_type("i32")
    text = builder.name(
        f"shufflevector {vector} {value.text}, {vector} poison, <{builder.lanes} x i32> <{order}>"
    )
    return varying("i32", text), varying("i1", f"<{flags}>")


def _computed(
    lowering: Lowering, mode: str, value: Value, offset: Value, control: Value
) -> tuple[Value, Value]:
    """The same with operands known only at run time."""
    builder = lowering.builder
    binary = builder.binary
    lane = builder.varying(Value("i32", "0", affine(1, 32)))
    low = integer("i32", 31)
    offset = binary("and", builder.flat(offset), low)
    control = builder.flat(control)
    bound = binary("and", control, low)
    segment = binary("and", binary("lshr", control, integer("i32", 8)), low)
    outside = binary("xor", segment, integer("i32", -1))
    least = binary("and", lane, segment)
    most = binary("or", least, binary("and", bound, outside))
    match mode:
        case "up":
            found = binary("sub", lane, offset)
            is_inside = builder.compare("icmp sge", found, most)
        case "down":
            found = binary("add", lane, offset)
            is_inside = builder.compare("icmp sle", found, most)
        case "bfly":
            found = binary("xor", lane, offset)
            is_inside = builder.compare("icmp sle", found, most)
        case _:
            found = binary("or", least, binary("and", binary("and", offset, outside), low))
            is_inside = builder.compare("icmp sle", found, most)
    source = builder.varying(builder.select(is_inside, found, lane))
    return pick(lowering, value, source), builder.varying(is_inside)


def pick(lowering: Lowering, value: Value, source: Value) -> Value:
    """Lane `source` of `value`, for each lane; sources are between 0 and 31."""
    builder = lowering.builder
    vector = builder.vector_type("i32")
    place = builder.allocate(vector)
    builder.emit(f"store {vector} {value.text}, ptr {place}, align 64")
    pointers = builder.vector_type("ptr")
    start = builder.name(f"getelementptr i32, ptr {place}, {vector} {source.text}")
    flags = builder.vector_type("i1")
    full = f"@llvm.masked.gather.v{builder.lanes}i32.v{builder.lanes}p0"
    builder.declarations.add(f"declare {vector} {full}({pointers}, {flags}, {vector})")
    return varying(
        "i32",
        builder.name(
            f"call {vector} {full}({pointers} align 4 {start}, {flags} splat (i1 true),"
            f" {vector} zeroinitializer)"
        ),
    )


def members(lowering: Lowering, operand: ir.Operand) -> str:
    """The active lanes that are members, as an i32."""
    builder = lowering.builder
    active = mask_word(builder, lowering.mask)
    member = lowering.read(operand, ScalarType.B32)
    if member.literal in (-1, 0xFFFFFFFF):
        return active
    if not member.is_uniform:
        # Lanes that meet name the same members: take those of the first.
        found = builder.reduce("or", builder.varying(_only_active(lowering, member, 0)))
        return builder.name(f"and i32 {active}, {found}")
    return builder.name(f"and i32 {active}, {member.text}")


def _only_active(lowering: Lowering, value: Value, otherwise: int) -> Value:
    """`value` in active lanes, a constant in others."""
    builder = lowering.builder
    mask = varying("i1", lowering.mask)
    return builder.select(mask, builder.varying(value), integer(value.type, otherwise))


def _vote(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    predicate = lowering.read(instruction.operands[1], ScalarType.PRED)
    if "sync" in instruction.modifiers:
        voters = members(lowering, instruction.operands[2])
    else:
        voters = mask_word(builder, lowering.mask)
    lanes = builder.name(
        f"bitcast {builder.vector_type('i1')} {builder.vector(predicate)} to i{builder.lanes}"
    )
    ayes = builder.name(f"and i32 {lanes}, {voters}")
    if "ballot" in instruction.modifiers:
        result = uniform("i32", ayes)
    elif "any" in instruction.modifiers:
        result = uniform("i1", builder.name(f"icmp ne i32 {ayes}, 0"))
    elif "all" in instruction.modifiers:
        result = uniform("i1", builder.name(f"icmp eq i32 {ayes}, {voters}"))
    elif "uni" in instruction.modifiers:
        none = builder.name(f"icmp eq i32 {ayes}, 0")
        every = builder.name(f"icmp eq i32 {ayes}, {voters}")
        result = uniform("i1", builder.name(f"or i1 {none}, {every}"))
    else:
        lowering.refuse(instruction)
    lowering.write(instruction.operands[0], result)


def _active(lowering: Lowering, instruction: ir.Instruction) -> None:
    word = mask_word(lowering.builder, lowering.mask)
    lowering.write(instruction.operands[0], uniform("i32", word))


def _reduce(lowering: Lowering, instruction: ir.Instruction) -> None:
    """redux.sync: one result from the values of all active lanes."""
    type_ = instruction.type
    sign = "s" if type_.is_signed else "u"
    half = 1 << 31
    neutral = {
        "add": ("add", 0),
        "and": ("and", -1),
        "or": ("or", 0),
        "xor": ("xor", 0),
        "min": (f"{sign}min", half - 1 if type_.is_signed else -1),
        "max": (f"{sign}max", -half if type_.is_signed else 0),
    }
    operation = next((m for m in instruction.modifiers if m in neutral), None)
    if operation is None or type_.is_float:
        lowering.refuse(instruction)
    name, otherwise = neutral[operation]
    value = lowering.read(instruction.operands[1], type_)
    lanes = lowering.builder.varying(_only_active(lowering, value, otherwise))
    lowering.write(instruction.operands[0], uniform("i32", lowering.builder.reduce(name, lanes)))


EMITTERS: dict[str, Emitter] = {
    "shfl": _shuffle,
    "vote": _vote,
    "activemask": _active,
    "redux": _reduce,
}
