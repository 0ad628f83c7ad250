"""Cellar, jit. ld and st, in every state space, of scalars and vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.jit.access import Access
from cudasync.softgpu.jit.addresses import place
from cudasync.softgpu.jit.noting import note
from cudasync.softgpu.jit.values import Value, llvm_type
from cudasync.softgpu.recording import Touch
from cudasync.softgpu.waiting import ORDERED

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.lowering import Emitter, Lowering


def load(lowering: Lowering, instruction: ir.Instruction) -> None:
    """ld, ldu: memory to registers, extended to the register's width."""
    target, source = instruction.operands[0], instruction.operands[1]
    targets = elements(target)
    type_ = instruction.type
    where = place(lowering, instruction, source)
    is_constant = instruction.space is StateSpace.PARAM and where.checked is None
    settle_memory(lowering, instruction)
    access = Access(lowering, where, type_.size, len(targets), is_constant=is_constant)
    note(lowering, instruction, where, type_.size * len(targets), Touch.READ)
    for register, value in zip(targets, access.load(llvm_type(type_)), strict=True):
        lowering.write(register, fit(lowering, register, value, type_))


def store(lowering: Lowering, instruction: ir.Instruction) -> None:
    """st: the low bits of registers to memory."""
    target, source = instruction.operands[0], instruction.operands[1]
    type_ = instruction.type
    values = [lowering.read(each, type_) for each in elements(source)]
    where = place(lowering, instruction, target)
    settle_memory(lowering, instruction)
    note(lowering, instruction, where, type_.size * len(values), Touch.WRITTEN)
    Access(lowering, where, type_.size, len(values)).store(values)


def settle_memory(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Keep LLVM from moving other accesses over one that other threads are to see."""
    if not ORDERED.isdisjoint(instruction.modifiers):
        lowering.builder.emit('fence syncscope("singlethread") seq_cst')


def elements(operand: ir.Operand) -> tuple[ir.Operand, ...]:
    """The members of a vector operand, or the operand itself."""
    found = getattr(operand, "elements", None)
    return (operand,) if found is None else tuple(found)


def fit(lowering: Lowering, target: ir.Operand, value: Value, type_: ScalarType) -> Value:
    """Extend an integer result to the width of the register that takes it."""
    register_type = getattr(target, "type", type_)
    if register_type.bits <= type_.bits:
        return value
    bits = lowering.builder.bitcast(value, f"i{type_.bits}")
    return lowering.builder.extend(bits, f"i{register_type.bits}", is_signed=type_.is_signed)


EMITTERS: dict[str, Emitter] = {"ld": load, "ldu": load, "st": store}
