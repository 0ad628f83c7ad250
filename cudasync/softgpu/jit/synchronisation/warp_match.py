"""Cellar, jit. match: finds the lanes of a warp that have the same value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Pair
from cudasync.softgpu.jit.convergence.calls import note_meeting
from cudasync.softgpu.jit.synchronisation.votes_and_reductions import members
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import integer, varying

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def _match(lowering: Lowering, instruction: ir.Instruction) -> None:
    """match.any: the lanes with this lane's value; match.all: all members if they agree, else 0."""
    if {"any", "all"}.isdisjoint(instruction.modifiers):
        lowering.refuse(instruction)
    builder = lowering.builder
    note_meeting(lowering, instruction)
    value = builder.varying(lowering.read(instruction.operands[1], instruction.type))
    member = members(lowering, instruction.operands[2])
    function = _function(builder, value.type)
    vector, words = builder.vector_type(value.type), builder.vector_type("i32")
    given, results = builder.allocate(vector), builder.allocate(words)
    builder.emit(f"store {vector} {value.text}, ptr {given}, align 64")
    builder.emit(f"store {words} zeroinitializer, ptr {results}, align 64")
    active = mask_word(builder, lowering.mask)
    builder.emit(f"call void {function}(ptr {given}, i32 {active}, ptr {results})")
    same = varying("i32", builder.name(f"load {words}, ptr {results}, align 64"))
    lanes = builder.binary("and", same, member)
    target = instruction.operands[0]
    if "any" in instruction.modifiers:
        lowering.write(target, lanes)
        return
    # All members agree exactly if all of them have this lane's value.
    agree = builder.compare("icmp eq", lanes, member)
    result = builder.select(agree, member, integer("i32", 0))
    if isinstance(target, Pair):
        lowering.write(target.first, result)
        lowering.write(target.second, agree)
    else:
        lowering.write(target, result)


def _function(builder: Builder, type_: str) -> str:
    """The function that finds, for each active lane, the active lanes with the same value."""
    lanes = builder.lanes
    name = f"@cudasync.match.v{lanes}{type_}"
    vector = builder.vector_type(type_)
    builder.functions[name] = f"""
define void {name}(ptr %values, i32 %active, ptr %results) {{
entry:
  %all = load {vector}, ptr %values, align 64
  br label %next
next:
  %left = phi i32 [%active, %entry], [%rest, %next]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lowered = sub i32 %left, 1
  %rest = and i32 %left, %lowered
  %own.at = getelementptr {type_}, ptr %values, i32 %lane
  %own = load {type_}, ptr %own.at
  %one = insertelement {vector} poison, {type_} %own, i32 0
  %own.all = shufflevector {vector} %one, {vector} poison, <{lanes} x i32> zeroinitializer
  %same = icmp eq {vector} %all, %own.all
  %bits = bitcast <{lanes} x i1> %same to i{lanes}
  %found = and i32 %bits, %active
  %result.at = getelementptr i32, ptr %results, i32 %lane
  store i32 %found, ptr %result.at
  %is.over = icmp eq i32 %rest, 0
  br i1 %is.over, label %done, label %next
done:
  ret void
}}
"""
    return name


EMITTERS: dict[str, Emitter] = {"match": _match}
