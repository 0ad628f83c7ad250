"""Cellar, jit. One result of all lanes of a warp: vote, activemask, redux, elect.

A warp runs in lockstep, so its lanes are together here. The member mask of the .sync forms only
excludes the lanes outside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Pair
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.convergence.calls import note_meeting
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.uniformity import affine
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform, varying

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def members(lowering: Lowering, operand: ir.Operand) -> Value:
    """The active members, for each lane: groups of a warp may name their own members."""
    builder = lowering.builder
    active = uniform("i32", mask_word(builder, lowering.mask))
    member = lowering.read(operand, ScalarType.B32)
    if member.literal in (-1, 0xFFFFFFFF):
        return active
    return builder.binary("and", active, builder.flat(member))


def _only_active(lowering: Lowering, value: Value, otherwise: int) -> Value:
    """`value` in active lanes, a constant in other lanes."""
    builder = lowering.builder
    mask = varying("i1", lowering.mask)
    return builder.select(mask, builder.varying(value), integer(value.type, otherwise))


def _vote(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    predicate = lowering.read(instruction.operands[1], ScalarType.PRED)
    note_meeting(lowering, instruction)
    if "sync" in instruction.modifiers:
        voters = members(lowering, instruction.operands[2])
    else:
        voters = uniform("i32", mask_word(builder, lowering.mask))
    ayes = builder.binary(
        "and", uniform("i32", mask_word(builder, builder.vector(predicate))), voters
    )
    if "ballot" in instruction.modifiers:
        result = ayes
    elif "any" in instruction.modifiers:
        result = builder.compare("icmp ne", ayes, integer("i32", 0))
    elif "all" in instruction.modifiers:
        result = builder.compare("icmp eq", ayes, voters)
    elif "uni" in instruction.modifiers:
        none = builder.compare("icmp eq", ayes, integer("i32", 0))
        result = builder.binary("or", none, builder.compare("icmp eq", ayes, voters))
    else:
        lowering.refuse(instruction)
    lowering.write(instruction.operands[0], result)


def _active(lowering: Lowering, instruction: ir.Instruction) -> None:
    word = mask_word(lowering.builder, lowering.mask)
    lowering.write(instruction.operands[0], uniform("i32", word))


def _reduce(lowering: Lowering, instruction: ir.Instruction) -> None:
    """redux.sync: one result from the values of all active lanes."""
    note_meeting(lowering, instruction)
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
    if type_.is_float and operation in ("min", "max"):
        _reduce_floats(lowering, instruction, operation)
        return
    if operation is None or type_.is_float or {"abs", "NaN"} & set(instruction.modifiers):
        lowering.refuse(instruction)
    name, otherwise = neutral[operation]
    value = lowering.read(instruction.operands[1], type_)
    result = _reduced(lowering, instruction, value, name, otherwise)
    lowering.write(instruction.operands[0], result)


def _reduced(
    lowering: Lowering, instruction: ir.Instruction, value: Value, name: str, otherwise: int
) -> Value:
    """LLVM's reduction `name` over the members; `otherwise` is its neutral value."""
    builder = lowering.builder
    member = members(lowering, instruction.operands[2])
    if member.is_uniform:
        lanes = builder.varying(_only_active(lowering, value, otherwise))
        return uniform("i32", builder.reduce(name, lanes))
    return _reduce_groups(lowering, builder.varying(value), member, name, otherwise)


def _reduce_groups(
    lowering: Lowering, value: Value, member: Value, name: str, otherwise: int
) -> Value:
    """The reduction where groups of lanes name different members: one group after the other."""
    builder = lowering.builder
    # Warp-wide instructions are lowered for 32 lanes only.
    lanes, vector, flags = 32, builder.vector_type("i32"), builder.vector_type("i1")
    function = f"@cudasync.reduce.{name}.v{lanes}i32"
    reduction = f"@llvm.vector.reduce.{name}.v{lanes}i32"
    builder.functions[function] = f"""
define void {function}(ptr %values, ptr %members, i32 %active, ptr %results) {{
entry:
  %all = load {vector}, ptr %values, align 64
  br label %next
next:
  %left = phi i32 [%active, %entry], [%rest, %next]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %group.at = getelementptr i32, ptr %members, i32 %lane
  %group = load i32, ptr %group.at
  %flags = bitcast i32 %group to {flags}
  %own = select {flags} %flags, {vector} %all, {vector} splat (i32 {otherwise})
  %result = call i32 {reduction}({vector} %own)
  %one = insertelement {vector} poison, i32 %result, i32 0
  %each = shufflevector {vector} %one, {vector} poison, <{lanes} x i32> zeroinitializer
  %before = load {vector}, ptr %results, align 64
  %after = select {flags} %flags, {vector} %each, {vector} %before
  store {vector} %after, ptr %results, align 64
  %first = shl i32 1, %lane
  %done = or i32 %group, %first
  %others = xor i32 %done, -1
  %rest = and i32 %left, %others
  %is.over = icmp eq i32 %rest, 0
  br i1 %is.over, label %over, label %next
over:
  ret void
}}
"""
    builder.declarations.add("declare i32 @llvm.cttz.i32(i32, i1)")
    builder.declarations.add(f"declare i32 {reduction}({vector})")
    places = [builder.allocate(vector) for _ in range(3)]
    for place, text in zip(places, (value.text, member.text, "zeroinitializer"), strict=True):
        builder.emit(f"store {vector} {text}, ptr {place}, align 64")
    active = mask_word(builder, lowering.mask)
    values, groups, results = places
    builder.emit(f"call void {function}(ptr {values}, ptr {groups}, i32 {active}, ptr {results})")
    return varying("i32", builder.name(f"load {vector}, ptr {results}, align 64"))


def _reduce_floats(lowering: Lowering, instruction: ir.Instruction, operation: str) -> None:
    """redux.sync.min or .max of f32, on integers in the same order as the floats.

    So -0.0 is less than +0.0, as in PTX. A NaN becomes an integer that no number has: it loses to
    every number, or with .NaN it wins over every number.
    """
    builder = lowering.builder
    extremes = {"min": 0x7FFFFFFF, "max": -(2**31)}
    loser = extremes[operation]
    winner = extremes["max" if operation == "min" else "min"]
    nan = integer("i32", winner if "NaN" in instruction.modifiers else loser)
    bits = builder.varying(lowering.read(instruction.operands[1], ScalarType.B32))
    size = builder.binary("and", bits, integer("i32", 0x7FFFFFFF))
    is_nan = builder.compare("icmp ugt", size, integer("i32", 0x7F800000))
    ordered = _flipped(builder, size if "abs" in instruction.modifiers else bits)
    key = builder.varying(builder.select(is_nan, nan, ordered))
    result = _reduced(lowering, instruction, key, f"s{operation}", loser)
    is_lost = builder.compare("icmp eq", result, nan)
    number = _flipped(builder, result)
    lowering.write(
        instruction.operands[0], builder.select(is_lost, integer("i32", 0x7FFFFFFF), number)
    )


def _flipped(builder: Builder, value: Value) -> Value:
    """The bits of a float as an integer in the same order, and back."""
    sign = builder.binary("ashr", value, integer("i32", 31))
    return builder.binary("xor", value, builder.binary("and", sign, integer("i32", 0x7FFFFFFF)))


def _elect(lowering: Lowering, instruction: ir.Instruction) -> None:
    """elect.sync: the first active member."""
    builder = lowering.builder
    target = instruction.operands[0]
    note_meeting(lowering, instruction)
    if not isinstance(target, Pair):
        lowering.refuse(instruction)
    member = members(lowering, instruction.operands[1])
    leader = builder.intrinsic("cttz", "i32", member, flag="false")
    lowering.write(target.first, leader)
    lane = builder.varying(Value("i32", "0", affine(1, 32)))
    lowering.write(target.second, builder.compare("icmp eq", lane, leader))


EMITTERS: dict[str, Emitter] = {
    "elect": _elect,
    "vote": _vote,
    "activemask": _active,
    "redux": _reduce,
}
