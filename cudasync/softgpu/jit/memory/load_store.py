"""Cellar, jit. ld and st, in every state space, of scalars and vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.access_recording import Touch
from cudasync.softgpu.jit.addressing.address_spaces import lifted_place
from cudasync.softgpu.jit.checks.recording_calls import note
from cudasync.softgpu.jit.memory.argument_vectors import (
    load_argument,
    passed_name,
    store_argument,
)
from cudasync.softgpu.jit.memory.coalescing import Access
from cudasync.softgpu.jit.memory.wraparound_access import load_lifted, store_lifted
from cudasync.softgpu.jit.vector_ir.lowering_context import fit
from cudasync.softgpu.jit.vector_ir.uniformity import Kind
from cudasync.softgpu.jit.vector_ir.values import Value, llvm_type
from cudasync.softgpu.jit.vector_ir.wraparound_indices import has_lifted_lanes, without_lift
from cudasync.softgpu.semantics.memory_visibility import ORDERED

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def load(lowering: Lowering, instruction: ir.Instruction) -> None:
    """ld, ldu: memory to registers, extended to the register's width."""
    target, source = instruction.operands[0], instruction.operands[1]
    targets = elements(target)
    type_ = instruction.type
    name = passed_name(lowering, source)
    if name is not None:
        value = load_argument(lowering, name, llvm_type(type_))
        lowering.write(target, fit(lowering, target, value, type_))
        return
    where = lifted_place(lowering, instruction, source)
    is_constant = instruction.space is StateSpace.PARAM and where.checked is None
    settle_memory(lowering, instruction)
    note(lowering, instruction, where, type_.size * len(targets), Touch.READ)

    element, count = llvm_type(type_), len(targets)
    values = either_way(
        lowering,
        where,
        lambda line: Access(lowering, line, type_.size, count, is_constant=is_constant).load(
            element
        ),
        lambda: load_lifted(lowering, where, type_.size, element, count),
    )
    for register, value in zip(targets, values, strict=True):
        lowering.write(register, fit(lowering, register, value, type_))


def store(lowering: Lowering, instruction: ir.Instruction) -> None:
    """st: the low bits of registers to memory."""
    target, source = instruction.operands[0], instruction.operands[1]
    type_ = instruction.type
    values = [lowering.read(each, type_) for each in elements(source)]
    name = passed_name(lowering, target)
    if name is not None:
        store_argument(lowering, name, values[0])
        return
    where = lifted_place(lowering, instruction, target)
    settle_memory(lowering, instruction)
    note(lowering, instruction, where, type_.size * len(values), Touch.WRITTEN, values)

    def in_line(line: Place) -> list[Value]:
        Access(lowering, line, type_.size, len(values)).store(values)
        return []

    def lifted() -> list[Value]:
        store_lifted(lowering, where, type_.size, values)
        return []

    either_way(lowering, where, in_line, lifted)


def either_way(
    lowering: Lowering,
    where: Place,
    in_line: Callable[[Place], list[Value]],
    lifted: Callable[[], list[Value]],
) -> list[Value]:
    """The values of an access: by `in_line` if no lane of its address is lifted, else `lifted`."""
    if where.address.shape.kind is not Kind.LIFTED:
        return in_line(where)
    builder = lowering.builder
    is_lifted = has_lifted_lanes(builder, where.address)
    plain, apart, done = (builder.fresh(each) for each in ("plain", "apart", "either"))
    builder.emit(f"br i1 {is_lifted}, label %{apart}, label %{plain}, !prof !1")
    builder.label(plain)
    usual = [builder.varying(each) for each in in_line(where.changed(without_lift))]
    usual_end = builder.go(done)
    builder.label(apart)
    others = lifted()
    others_end = builder.go(done)
    builder.label(done)
    return [
        builder.join(first, usual_end, second, others_end)
        for first, second in zip(usual, others, strict=True)
    ]


def settle_memory(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Keep LLVM from moving accesses across one that other threads must see in order."""
    if not ORDERED.isdisjoint(instruction.modifiers):
        lowering.builder.emit('fence syncscope("singlethread") seq_cst')


def elements(operand: ir.Operand) -> tuple[ir.Operand, ...]:
    """The members of a vector operand, or the operand itself."""
    found = getattr(operand, "elements", None)
    return (operand,) if found is None else tuple(found)


EMITTERS: dict[str, Emitter] = {"ld": load, "ldu": load, "st": store}
