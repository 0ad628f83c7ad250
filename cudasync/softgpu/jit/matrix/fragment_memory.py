"""Cellar, jit. Matrix fragments in stack memory: one register of all lanes after the other.

Functions that work on a whole warp take and return fragments in this form. All instructions share
the memory, because a kernel may have thousands of them, and no instruction needs values that
another left there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx import ir
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.memory.load_store import elements
from cudasync.softgpu.jit.vector_ir.function_writer import SILENT
from cudasync.softgpu.jit.vector_ir.values import Value, llvm_type, varying
from cudasync.softgpu.semantics.matrix_fragments import LANES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
    from cudasync.softgpu.semantics.matrix_fragments import Fragment

# Eight registers of 64 bits in 32 lanes, the largest of all fragments.
FRAGMENT_BYTES = 8 * 8 * LANES


def stack_memory(lowering: Lowering, purpose: str) -> str:
    """Stack memory for a fragment."""
    return lowering.builder.scratch(f"fragment.{purpose}", FRAGMENT_BYTES)


def registers(
    lowering: Lowering, instruction: ir.Instruction, operand: ir.Operand, held: Fragment
) -> tuple[ir.Operand, ...]:
    """The registers of a fragment: as many as it needs, or the instruction is refused."""
    found = elements(operand)
    complaint = held.misfit(found)
    if complaint is not None:
        lowering.refuse(instruction, complaint)
    return found


def put(
    lowering: Lowering,
    instruction: ir.Instruction,
    operand: ir.Operand,
    held: Fragment,
    purpose: str,
) -> str:
    """Store a fragment in memory; return its address.

    Without text only its registers are checked: a product's result varies, whatever they hold.
    """
    type_ = ScalarType.F64 if held.word_bits == 64 else ScalarType.B32
    found = registers(lowering, instruction, operand, held)
    if lowering.builder.is_silent:
        return SILENT
    # A register has the fragment's width, and is stored in the type that it has.
    words = [
        lowering.load_register(each)
        if isinstance(each, ir.Register)
        else lowering.read(each, type_)
        for each in found
    ]
    return put_words(lowering, words, purpose)


def put_words(lowering: Lowering, words: Sequence[Value], purpose: str) -> str:
    """Store words of every lane in memory, one word of all lanes after the other."""
    builder = lowering.builder
    memory = stack_memory(lowering, purpose)
    for number, value in enumerate(words):
        vector = builder.vector_type(value.type)
        slot = builder.scratch_part(memory, vector, number)
        builder.emit(f"store {vector} {builder.vector(value)}, ptr {slot}, align 64")
    return memory


def take(
    lowering: Lowering,
    instruction: ir.Instruction,
    operand: ir.Operand,
    held: Fragment,
    memory: str,
) -> None:
    """Write the registers of a fragment from memory."""
    found = registers(lowering, instruction, operand, held)
    type_ = "double" if held.word_bits == 64 else "i32"
    for number, each in enumerate(found):
        own = llvm_type(each.type) if isinstance(each, ir.Register) else type_
        lowering.write(each, word(lowering, memory, number, own))


def word(lowering: Lowering, memory: str, number: int, type_: str = "i32") -> Value:
    """Word `number` of every lane."""
    builder = lowering.builder
    if builder.is_silent:
        return varying(type_, SILENT)
    vector = builder.vector_type(type_)
    slot = builder.scratch_part(memory, vector, number)
    return varying(type_, builder.name(f"load {vector}, ptr {slot}, align 64"))
