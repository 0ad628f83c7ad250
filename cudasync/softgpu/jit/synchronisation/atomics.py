"""Cellar, jit. atom and red: one lane after another, the first lane first.

Global and generic atomics are atomic for every thread of the process. Shared atomics need not be,
because a block runs on one thread. Scope and order modifiers change nothing, because every
operation is sequentially consistent. If the program does not use the old value and all lanes have
one address, an integer operation is done once for all lanes. Floats are added in order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Sink
from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.interface.access_recording import Touch
from cudasync.softgpu.jit.addressing.address_spaces import place
from cudasync.softgpu.jit.checks.recording_calls import note
from cudasync.softgpu.jit.memory.coalescing import Access
from cudasync.softgpu.jit.synchronisation.half_atomics import HALVES
from cudasync.softgpu.jit.synchronisation.half_atomics import OPERATIONS as HALF_OPERATIONS
from cudasync.softgpu.jit.synchronisation.half_atomics import action as half_action
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import (
    Value,
    bits_of,
    integer,
    is_float,
    llvm_type,
    varying,
)

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

_TYPES = frozenset(
    {
        ScalarType.B32,
        ScalarType.U32,
        ScalarType.S32,
        ScalarType.F32,
        ScalarType.B64,
        ScalarType.U64,
        ScalarType.S64,
        ScalarType.F64,
    }
)
_OPERATIONS = ("add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec")
_OF_FLOATS = ("add", "exch")
# Operations that can be done once for all lanes, with their neutral value.
_TOGETHER = {"add": 0, "or": 0, "xor": 0, "and": -1}
# The number of lanes in one trip of the loop over all lanes.
_AT_A_TIME = 8
# Names that mean the same in every step of that loop.
_OUTSIDE = "at|addresses|values|results"


def _atomic(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    type_ = instruction.type
    operation = next((each for each in _OPERATIONS if each in instruction.modifiers), None)
    is_vector = instruction.vector_size > 1
    is_narrow_swap = type_ is ScalarType.B16 and operation == "cas"
    is_half = type_ in HALVES
    if not (type_ in _TYPES or is_narrow_swap or is_half) or operation is None or is_vector:
        lowering.refuse(instruction)
    if type_.is_float and operation not in (HALF_OPERATIONS if is_half else _OF_FLOATS):
        lowering.refuse(instruction)
    held = "i16" if is_half else llvm_type(type_)
    target: ir.Operand = Sink()
    operands = list(instruction.operands)
    if instruction.opcode == "atom":
        target = operands.pop(0)
    if not lowering.is_wanted(target):
        target = Sink()
    where = place(lowering, instruction, operands[0])
    count = 2 if operation == "cas" else 1
    values = [
        lowering.convert(lowering.read(each, type_), held) for each in operands[1 : 1 + count]
    ]
    access = Access(lowering, where, type_.size, 1)
    access.check_lanes()
    note(lowering, instruction, where, type_.size, Touch.READ | Touch.WRITTEN)
    is_shared = instruction.space is StateSpace.SHARED
    if (
        isinstance(target, Sink)
        and operation in _TOGETHER
        and where.address.is_uniform
        and not type_.is_float
    ):
        _once(lowering, operation, where.address, values[0], is_shared=is_shared)
        return
    is_wanted = not isinstance(target, Sink)
    name = _function(lowering, operation, type_, is_shared=is_shared, is_wanted=is_wanted)
    vector = builder.vector_type(held)
    addresses = builder.allocate(builder.vector_type("i64"))
    builder.emit(
        f"store {builder.vector_type('i64')} {builder.vector(where.address)}, ptr {addresses}"
    )
    places = [builder.allocate(vector) for _ in range(3)]
    for value, slot in zip(values, places, strict=False):
        builder.emit(f"store {vector} {builder.vector(value)}, ptr {slot}")
    if not isinstance(target, Sink):
        builder.emit(f"store {vector} zeroinitializer, ptr {places[2]}")
    word = mask_word(builder, lowering.mask)
    builder.emit(
        f"call void {name}(ptr {addresses}, ptr {places[0]}, ptr {places[1]}, ptr {places[2]},"
        f" i32 {word})"
    )
    if not isinstance(target, Sink):
        old = builder.name(f"load {vector}, ptr {places[2]}")
        lowering.write(target, varying(held, old))


def _once(
    lowering: Lowering, operation: str, address: Value, value: Value, *, is_shared: bool
) -> None:
    """Do one operation for all active lanes together, on their sum (or the like)."""
    builder = lowering.builder
    neutral = integer(value.type, _TOGETHER[operation])
    mask = varying("i1", lowering.mask)
    lanes = builder.varying(builder.select(mask, builder.varying(value), neutral))
    total = builder.reduce(operation, lanes)
    pointer = builder.name(f"inttoptr i64 {address.text} to ptr")
    align = bits_of(value.type) // 8
    if is_shared:
        old = builder.name(f"load {value.type}, ptr {pointer}, align 1")
        new = builder.name(f"{operation} {value.type} {old}, {total}")
        builder.emit(f"store {value.type} {new}, ptr {pointer}, align 1")
    else:
        builder.emit(
            f"atomicrmw {operation} ptr {pointer}, {value.type} {total} seq_cst, align {align}"
        )


def _function(
    lowering: Lowering, operation: str, type_: ScalarType, *, is_shared: bool, is_wanted: bool
) -> str:
    """The function that does this lane by lane, made at its first use.

    It keeps old values if they are wanted.
    """
    held = "i16" if type_ in HALVES else llvm_type(type_)
    last = "next"
    lanes = lowering.builder.lanes
    where = "shared" if is_shared else "global"
    name = f"@cudasync.atom.{operation}.{type_.value}.{where}.v{lanes}"
    name += "" if is_wanted else ".unread"
    keep = f"  store {held} %old, ptr %result.at" if is_wanted else ""
    begin, whole = "  br label %next", ""
    if name in lowering.builder.functions:
        return name
    if type_ in HALVES:
        act, last = half_action(lowering.builder, operation, type_, is_shared=is_shared), "stored"
    elif operation == "cas":
        act = _compare_and_swap(held, is_shared=is_shared)
    elif is_shared:
        act = f"  %old = load {held}, ptr %pointer, align 1\n"
        act += _result(operation, type_, held)
        act += f"  store {held} %new, ptr %pointer, align 1"
        full = (1 << lanes) - 1
        begin = f"  %is.full = icmp eq i32 %mask, {full}\n"
        begin += "  br i1 %is.full, label %whole, label %next"
        whole = _all_lanes(held, lanes, f"{act}\n{keep}")
    else:
        act = (
            f"  %old = atomicrmw {_instruction(operation, type_)} ptr %pointer, {held} %value"
            f" seq_cst, align {type_.size}"
        )
    lowering.builder.functions[name] = f"""
define void {name}(ptr %addresses, ptr %values, ptr %seconds, ptr %results, i32 %mask) {{
entry:
{begin}
{whole}
next:
  %left = phi i32 [%mask, %entry], [%rest, %{last}]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lowered = sub i32 %left, 1
  %rest = and i32 %left, %lowered
  %address.at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %address.at
  %pointer = inttoptr i64 %address to ptr
  %value.at = getelementptr {held}, ptr %values, i32 %lane
  %value = load {held}, ptr %value.at
  %second.at = getelementptr {held}, ptr %seconds, i32 %lane
  %result.at = getelementptr {held}, ptr %results, i32 %lane
{act}
{keep}
  %is.over = icmp eq i32 %rest, 0
  br i1 %is.over, label %done, label %next
done:
  ret void
}}
"""
    return name


def _all_lanes(held: str, lanes: int, act: str) -> str:
    """A loop over all lanes, some at a time, which need not search for active lanes."""
    lines = ["whole:", "  %at = phi i32 [0, %entry], [%at.next, %whole]"]
    for step in range(_AT_A_TIME):
        one = f"""  %lane = add i32 %at, {step}
  %address.at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %address.at
  %pointer = inttoptr i64 %address to ptr
  %value.at = getelementptr {held}, ptr %values, i32 %lane
  %value = load {held}, ptr %value.at
  %result.at = getelementptr {held}, ptr %results, i32 %lane
{act}"""
        lines.append(re.sub(rf"%(?!({_OUTSIDE})\b)([a-z.]+)", rf"%\2.{step}", one))
    return "\n".join(
        [
            *lines,
            f"  %at.next = add i32 %at, {_AT_A_TIME}",
            f"  %is.through = icmp eq i32 %at.next, {lanes}",
            "  br i1 %is.through, label %done, label %whole",
        ]
    )


def _compare_and_swap(held: str, *, is_shared: bool) -> str:
    lines = [f"  %second = load {held}, ptr %second.at"]
    if is_shared:
        lines += [
            f"  %old = load {held}, ptr %pointer, align 1",
            f"  %is.equal = icmp eq {held} %old, %value",
            f"  %new = select i1 %is.equal, {held} %second, {held} %old",
            f"  store {held} %new, ptr %pointer, align 1",
        ]
    else:
        lines += [
            f"  %pair = cmpxchg ptr %pointer, {held} %value, {held} %second seq_cst seq_cst",
            f"  %old = extractvalue {{{held}, i1}} %pair, 0",
        ]
    return "\n".join(lines)


def _instruction(operation: str, type_: ScalarType) -> str:
    """The operation of LLVM's atomicrmw."""
    match operation:
        case "add":
            return "fadd" if type_.is_float else "add"
        case "min" | "max":
            return operation if type_.is_signed else f"u{operation}"
        case "exch":
            return "xchg"
        case "inc":
            return "uinc_wrap"
        case "dec":
            return "udec_wrap"
        case _:
            return operation


def _result(operation: str, type_: ScalarType, held: str) -> str:
    """%new from %old and %value, without atomicity."""
    sign = "s" if type_.is_signed else "u"
    match operation:
        case "add":
            kind = "fadd" if is_float(held) else "add"
            return f"  %new = {kind} {held} %old, %value\n"
        case "exch":
            return f"  %new = select i1 true, {held} %value, {held} %value\n"
        case "min" | "max":
            relation = f"{sign}lt" if operation == "min" else f"{sign}gt"
            return (
                f"  %is.kept = icmp {relation} {held} %old, %value\n"
                f"  %new = select i1 %is.kept, {held} %old, {held} %value\n"
            )
        case "inc":
            return (
                f"  %is.top = icmp uge {held} %old, %value\n"
                f"  %more = add {held} %old, 1\n"
                f"  %new = select i1 %is.top, {held} 0, {held} %more\n"
            )
        case "dec":
            return (
                f"  %is.zero = icmp eq {held} %old, 0\n"
                f"  %is.high = icmp ugt {held} %old, %value\n"
                f"  %wraps = or i1 %is.zero, %is.high\n"
                f"  %less = sub {held} %old, 1\n"
                f"  %new = select i1 %wraps, {held} %value, {held} %less\n"
            )
        case _:
            return f"  %new = {operation} {held} %old, %value\n"


EMITTERS: dict[str, Emitter] = {"atom": _atomic, "red": _atomic}
