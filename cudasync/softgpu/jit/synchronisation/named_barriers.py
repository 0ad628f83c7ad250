"""Cellar, jit. Barriers with numbers, counts and reductions; most kernels need none of this.

If a kernel's only barrier is one number for all threads, it opens when no warp can go on. Any other
barrier is named: at the end of a round `@cudasync.open` counts the lanes at each barrier, opens
complete barriers, and detects that none can ever be complete. Counts are of threads. A barrier
without a count does not wait for threads that have left the kernel.

For each of the 16 numbers the block keeps five words. Two count true predicates and threads that
brought a predicate, both since the barrier last opened. The next two are these counts at that
opening. The last counts threads that arrived without waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.kernel_abi.barrier_operands import _operands, is_fixed, number_and_count
from cudasync.softgpu.jit.kernel_abi.fault_exit import emit_fault
from cudasync.softgpu.jit.kernel_abi.job_record import (
    BARRIER_WORDS,
    BARRIERS,
    DONE,
    FaultCode,
    Field,
    read_field,
)
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform, varying

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.analysis.suspension_points import Stop
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

TRUE, BROUGHT, TRUE_THEN, BROUGHT_THEN, ARRIVED = range(BARRIER_WORDS)
_REDUCTIONS = ("popc", "and", "or")


def emit_agreement(
    lowering: Lowering, instruction: Instruction, number: Value, count: Value, differs: str
) -> None:
    """Report a fault if lanes of one warp name different barriers, or a barrier out of range.

    `differs` is an i1: whether lanes of the warp wait there already, for another barrier.
    """
    builder = lowering.builder
    beyond = builder.compare("icmp uge", number, integer("i32", BARRIERS))
    wrong = builder.name(f"or i1 {differs}, {beyond.text}")
    active = mask_word(builder, lowering.mask)
    for operand, first in zip(_operands(instruction), (number, count), strict=False):
        value = lowering.read(operand, ScalarType.U32)
        if not value.is_uniform:
            flags = builder.vector(builder.compare("icmp ne", value, first))
            others = builder.name(f"and i32 {mask_word(builder, flags)}, {active}")
            wrong = builder.name(f"or i1 {wrong}, {builder.name(f'icmp ne i32 {others}, 0')}")
    bad, well = builder.fresh("apart"), builder.fresh("agreed")
    builder.emit(f"br i1 {wrong}, label %{bad}, label %{well}")
    builder.label(bad)
    emit_fault(builder, FaultCode.BARRIER, lowering.number(), lowering.mask)
    builder.label(well)


def _word(lowering: Lowering, number: Value, word: int) -> str:
    builder = lowering.builder
    start = read_field(builder, Field.BARRIERS, "ptr")
    row = builder.binary("mul", number, integer("i32", BARRIER_WORDS))
    place = builder.binary("add", row, integer("i32", word))
    return builder.name(f"getelementptr i32, ptr {start}, i32 {place.text}")


def _increase(lowering: Lowering, number: Value, word: int, mask: str) -> None:
    """Add the number of lanes in an i32 mask to a word."""
    builder = lowering.builder
    builder.declarations.add("declare i32 @llvm.ctpop.i32(i32)")
    place = _word(lowering, number, word)
    before = builder.name(f"load i32, ptr {place}")
    lanes = builder.name(f"call i32 @llvm.ctpop.i32(i32 {mask})")
    builder.emit(f"store i32 {builder.name(f'add i32 {before}, {lanes}')}, ptr {place}")


def emit_arrive(lowering: Lowering, instruction: Instruction) -> None:
    """bar.arrive: count the lanes without waiting."""
    number, count = number_and_count(lowering, instruction)
    if count.literal == 0:
        lowering.refuse(instruction)
    if not is_fixed(instruction):
        emit_agreement(lowering, instruction, number, count, "false")
    _increase(lowering, number, ARRIVED, mask_word(lowering.builder, lowering.mask))


def emit_bring(lowering: Lowering, instruction: Instruction) -> None:
    """bar.red: add this warp's predicates to the barrier's counts."""
    if "red" not in instruction.modifiers:
        return
    builder = lowering.builder
    number, _ = number_and_count(lowering, instruction)
    predicate = lowering.read(instruction.operands[-1], ScalarType.PRED)
    active = mask_word(builder, lowering.mask)
    flags = varying("i1", lowering.mask)
    true = builder.binary("and", flags, builder.varying(predicate))
    _increase(lowering, number, TRUE, mask_word(builder, true.text))
    _increase(lowering, number, BROUGHT, active)


def emit_result(lowering: Lowering, instruction: Instruction) -> None:
    """bar.red: write the result, once the barrier is open."""
    if "red" not in instruction.modifiers:
        return
    number, _ = number_and_count(lowering, instruction)
    lowering.write(instruction.operands[0], _result(lowering, instruction, number))


def _result(lowering: Lowering, instruction: Instruction, number: Value) -> Value:
    builder = lowering.builder
    true = builder.name(f"load i32, ptr {_word(lowering, number, TRUE_THEN)}")
    brought = builder.name(f"load i32, ptr {_word(lowering, number, BROUGHT_THEN)}")
    operation = next((each for each in _REDUCTIONS if each in instruction.modifiers), None)
    match operation:
        case "popc":
            return uniform("i32", true)
        case "and":
            return uniform("i1", builder.name(f"icmp eq i32 {true}, {brought}"))
        case "or":
            return uniform("i1", builder.name(f"icmp ne i32 {true}, 0"))
    lowering.refuse(instruction)


def probe_result(lowering: Lowering, instruction: Instruction) -> None:
    """Write the shape of `emit_result`'s result, for the analysis; refuse what it would refuse."""
    number_and_count(lowering, instruction)
    if "red" in instruction.modifiers:
        if not is_fixed(instruction):
            lowering.refuse(instruction, "bar.red with its number in a register is not implemented")
        _result(lowering, instruction, integer("i32", 0))
        is_count = "popc" in instruction.modifiers
        lowering.write(instruction.operands[0], integer("i32" if is_count else "i1", 0))


def open_function(
    lowering: Lowering, stops: tuple[Stop, ...], frame_bytes: int, places: Mapping[int, int]
) -> str:
    """The text of `@cudasync.open`, which returns one bit for each number that opens now.

    If no barrier opens and no warp spins, it reports the fault and returns 0. If a register holds
    a barrier's number, `places` has the place in the frame of its bit and its count.
    """
    body = lowering.function.body
    counting: list[str] = []
    choosing: list[str] = []
    every, where = "0", "0"
    for stop in reversed(stops):
        k = stop.code
        counting += [
            f"  %place.{k} = getelementptr i8, ptr %frame, i64 {4 * k}",
            f"  %mask.{k} = load i32, ptr %place.{k}",
            f"  %lanes.{k} = call i32 @llvm.ctpop.i32(i32 %mask.{k})",
            f"  call void @cudasync.add(ptr %living, i32 0, i32 %lanes.{k})",
        ]
        if not stop.is_barrier:
            continue
        if k in places:
            counting += [
                f"  %bit.{k}.at = getelementptr i8, ptr %frame, i64 {places[k]}",
                f"  %bit.{k} = load i32, ptr %bit.{k}.at",
                f"  %named.{k} = call i32 @llvm.cttz.i32(i32 %bit.{k}, i1 false)",
                f"  %number.{k} = and i32 %named.{k}, {BARRIERS - 1}",
                f"  %count.{k}.at = getelementptr i8, ptr %frame, i64 {places[k] + 4}",
                f"  %count.{k} = load i32, ptr %count.{k}.at",
            ]
            number, count = f"%number.{k}", f"%count.{k}"
        else:
            fixed = number_and_count(lowering, body[stop.position])
            number, count = (each.text for each in fixed)
        counting += [
            f"  call void @cudasync.add(ptr %present, i32 {number}, i32 %lanes.{k})",
            f"  call void @cudasync.want(ptr %wanted, i32 {number}, i32 {count}, i32 %lanes.{k})",
        ]
        # The lanes at any barrier, and the first barrier with lanes.
        position = lowering.number(stop.position)
        choosing += [
            f"  %every.{k} = or i32 {every}, %mask.{k}",
            f"  %here.{k} = icmp ne i32 %mask.{k}, 0",
            f"  %where.{k} = select i1 %here.{k}, i64 {position}, i64 {where}",
        ]
        every, where = f"%every.{k}", f"%where.{k}"
    each_stop = "\n".join(counting + choosing)
    declarations = lowering.builder.declarations
    declarations.add("declare i32 @llvm.ctpop.i32(i32)")
    declarations.add("declare i32 @llvm.cttz.i32(i32, i1)")
    declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    return f"""
define internal void @cudasync.add(ptr %words, i32 %index, i32 %more) nounwind {{
  %place = getelementptr i32, ptr %words, i32 %index
  %before = load i32, ptr %place
  %after = add i32 %before, %more
  store i32 %after, ptr %place
  ret void
}}
define internal void @cudasync.want(ptr %words, i32 %index, i32 %count, i32 %lanes) nounwind {{
  %place = getelementptr i32, ptr %words, i32 %index
  %before = load i32, ptr %place
  %is.more = icmp ugt i32 %count, %before
  %is.here = icmp ne i32 %lanes, 0
  %counts = and i1 %is.more, %is.here
  %after = select i1 %counts, i32 %count, i32 %before
  store i32 %after, ptr %place
  ret void
}}
define internal i32 @cudasync.open(ptr %job, ptr %states, ptr %frames, i32 %warps,
    i1 %spinning) noinline nounwind {{
entry:
  %present = alloca i32, i32 {BARRIERS}
  %wanted = alloca i32, i32 {BARRIERS}
  %living = alloca i32
  %first.warp = alloca i32
  %first.mask = alloca i32
  %first.where = alloca i64
  call void @llvm.memset.p0.i64(ptr %present, i8 0, i64 {4 * BARRIERS}, i1 false)
  call void @llvm.memset.p0.i64(ptr %wanted, i8 0, i64 {4 * BARRIERS}, i1 false)
  store i32 0, ptr %living
  store i32 0, ptr %first.warp
  store i32 0, ptr %first.mask
  store i64 0, ptr %first.where
  %barriers.at = getelementptr i64, ptr %job, i64 {Field.BARRIERS.value}
  %barriers.address = load i64, ptr %barriers.at
  %barriers = inttoptr i64 %barriers.address to ptr
  br label %next
next:
  %warp = phi i32 [0, %entry], [%following, %counted]
  %is.over = icmp uge i32 %warp, %warps
  br i1 %is.over, label %numbers, label %look
look:
  %wide = zext i32 %warp to i64
  %state.at = getelementptr i32, ptr %states, i64 %wide
  %state = load i32, ptr %state.at
  %is.done = icmp eq i32 %state, {DONE}
  br i1 %is.done, label %counted, label %count
count:
  %offset = mul i64 %wide, {frame_bytes}
  %frame = getelementptr i8, ptr %frames, i64 %offset
{each_stop}
  %known = load i32, ptr %first.mask
  %is.new = icmp eq i32 %known, 0
  br i1 %is.new, label %note, label %counted
note:
  store i32 %warp, ptr %first.warp
  store i32 {every}, ptr %first.mask
  store i64 {where}, ptr %first.where
  br label %counted
counted:
  %following = add i32 %warp, 1
  br label %next
numbers:
  %everyone = load i32, ptr %living
  br label %number.next
number.next:
  %number = phi i32 [0, %numbers], [%number.following, %number.done]
  %opened = phi i32 [0, %numbers], [%opened.now, %number.done]
  %is.last = icmp eq i32 %number, {BARRIERS}
  br i1 %is.last, label %decide, label %number.look
number.look:
  %present.at = getelementptr i32, ptr %present, i32 %number
  %here = load i32, ptr %present.at
  %wanted.at = getelementptr i32, ptr %wanted, i32 %number
  %given = load i32, ptr %wanted.at
  %row = mul i32 %number, {BARRIER_WORDS}
  %row.at = getelementptr i32, ptr %barriers, i32 %row
  %arrived.at = getelementptr i32, ptr %row.at, i32 {ARRIVED}
  %passed = load i32, ptr %arrived.at
  %total = add i32 %here, %passed
  %is.for.all = icmp eq i32 %given, 0
  %needed = select i1 %is.for.all, i32 %everyone, i32 %given
  %is.enough = icmp uge i32 %total, %needed
  %is.anyone = icmp ne i32 %here, 0
  %opens = and i1 %is.enough, %is.anyone
  br i1 %opens, label %number.opens, label %number.done
number.opens:
  %bit = shl i32 1, %number
  %more = or i32 %opened, %bit
  %true.at = getelementptr i32, ptr %row.at, i32 {TRUE}
  %brought.at = getelementptr i32, ptr %row.at, i32 {BROUGHT}
  %true = load i32, ptr %true.at
  %brought = load i32, ptr %brought.at
  %true.then.at = getelementptr i32, ptr %row.at, i32 {TRUE_THEN}
  %brought.then.at = getelementptr i32, ptr %row.at, i32 {BROUGHT_THEN}
  store i32 %true, ptr %true.then.at
  store i32 %brought, ptr %brought.then.at
  store i32 0, ptr %true.at
  store i32 0, ptr %brought.at
  store i32 0, ptr %arrived.at
  br label %number.done
number.done:
  %opened.now = phi i32 [%opened, %number.look], [%more, %number.opens]
  %number.following = add i32 %number, 1
  br label %number.next
decide:
  %is.some = icmp ne i32 %opened, 0
  %goes.on = or i1 %is.some, %spinning
  br i1 %goes.on, label %done, label %stuck
stuck:
  %stuck.warp = load i32, ptr %first.warp
  %stuck.mask = load i32, ptr %first.mask
  %stuck.where = load i64, ptr %first.where
  call void @cudasync.report(ptr %job, i64 {FaultCode.BARRIER.value}, i64 %stuck.where,
    i32 %stuck.mask, i64 0)
  %stuck.wide = zext i32 %stuck.warp to i64
  %stuck.place = getelementptr i64, ptr %job, i64 {Field.FAULT_WARP.value}
  store i64 %stuck.wide, ptr %stuck.place
  br label %done
done:
  ret i32 %opened
}}
"""
