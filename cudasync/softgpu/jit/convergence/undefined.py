"""Cellar, jit. What lanes have read of lanes that were not there, until it matters.

A shuffle that reads of a lane which has ended, is not in the block, or is not in the mask, gives a
value that is undefined (PTX ISA, shfl.sync). Programs read such values and drop them: so each
register that may hold one has a word of the lanes that do. What is computed of it is undefined,
too. It is told where it is stored, is an address, or decides a branch. Words begin anew behind a
barrier of the block, and calls are not followed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Negated, Register
from cudasync.ptx.liveness import defs, uses
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.convergence.functions import (
    DECLARATIONS,
    FUNCTIONS,
    LIVING_NAME,
    UNDEFINED_NAME,
)
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_WHO: Final = "ptr %job, i32 %ctaid.x, i32 %ctaid.y, i32 %ctaid.z, i32 %warp"
_LINE: Final = '%"=undefined.line"'
# Where a value that is undefined does harm; what they write is memory's, or the branch's.
_MATTERS: Final = frozenset({"st", "atom", "red", "stmatrix", "ld", "ldu", "bra", "brx"})
# Lanes get one result of all their values.
_TOGETHER: Final = frozenset({"vote", "redux", "match"})
_NOT_FOLLOWED: Final = frozenset({"ld", "ldu", "atom", "call", "ldmatrix", "wmma", "mma"})


class Undefined:
    """The registers of a function that may hold undefined lanes; `names` of all registers."""

    def __init__(
        self, lowering: Lowering, names: Iterable[str], unsafe: Iterable[Instruction]
    ) -> None:
        """`unsafe` are the shuffles that may read of a lane that is not there."""
        self._lowering = lowering
        self._tracked = _tracked(lowering.function.body, unsafe) & set(names)
        # What the shuffle that was just lowered has read of nobody.
        self._shuffled = ""
        builder = lowering.builder
        if self._tracked:
            for place in sorted(map(_place, self._tracked)):
                builder.allocations.append(f"  {place} = alloca i32")
                builder.emit(f"store i32 0, ptr {place}")
            builder.allocations.append(f"  {_LINE} = alloca i64")
            builder.emit(f"store i64 0, ptr {_LINE}")

    def begin(self, instruction: Instruction) -> None:
        """Before an instruction: tell if it matters that a value of it is undefined."""
        self._shuffled = ""
        read = self._of(_read_by(instruction))
        if instruction.opcode not in _MATTERS or not read:
            return
        builder, lowering = self._lowering.builder, self._lowering
        harmed = builder.name(f"and i32 {read}, {mask_word(builder, lowering.mask)}")
        builder.functions.update(FUNCTIONS)
        builder.declarations.update(DECLARATIONS)
        shuffle = builder.name(f"load i64, ptr {_LINE}")
        builder.emit(
            f"call void {UNDEFINED_NAME}({_WHO}, i32 {harmed}, i64 {instruction.span.line},"
            f" i64 {shuffle})"
        )

    def shuffle(self, instruction: Instruction, source: Value) -> None:
        """Each lane reads of the lane `source`."""
        if self._tracked.isdisjoint(_read_into(instruction)):
            return
        lowering, builder = self._lowering, self._lowering.builder
        builder.functions.update(FUNCTIONS)
        builder.declarations.update(DECLARATIONS)
        living = builder.name(f"call i32 {LIVING_NAME}({_WHO})")
        members = lowering.read(instruction.operands[-1], ScalarType.U32)
        there = builder.binary("and", builder.flat(members), uniform("i32", living))
        absent = builder.binary("xor", there, integer("i32", -1))
        held = self._of(_read_by(instruction))
        if held:
            absent = builder.binary("or", absent, uniform("i32", held))
        shifted = builder.binary("lshr", absent, source)
        bit = builder.binary("and", shifted, integer("i32", 1))
        flags = builder.vector(builder.compare("icmp ne", bit, integer("i32", 0)))
        self._shuffled = word = mask_word(builder, flags)
        fresh = builder.name(f"and i32 {word}, {mask_word(builder, lowering.mask)}")
        is_some = builder.name(f"icmp ne i32 {fresh}, 0")
        before = builder.name(f"load i64, ptr {_LINE}")
        line = f"select i1 {is_some}, i64 {instruction.span.line}, i64 {before}"
        builder.emit(f"store i64 {builder.name(line)}, ptr {_LINE}")

    def end(self, instruction: Instruction) -> None:
        """Behind an instruction: what it wrote is as undefined as what it read."""
        written = [each for each in _read_into(instruction) if each in self._tracked]
        if not written:
            return
        builder = self._lowering.builder
        read = self._shuffled or self._result_of(instruction)
        mask = mask_word(builder, self._lowering.mask)
        new = builder.name(f"and i32 {read}, {mask}")
        others = builder.name(f"xor i32 {mask}, -1")
        for name in dict.fromkeys(written):
            old = builder.name(f"load i32, ptr {_place(name)}")
            kept = builder.name(f"and i32 {old}, {others}")
            builder.emit(f"store i32 {builder.name(f'or i32 {kept}, {new}')}, ptr {_place(name)}")

    def _result_of(self, instruction: Instruction) -> str:
        builder, lowering = self._lowering.builder, self._lowering
        if instruction.opcode in _NOT_FOLLOWED:
            return "0"
        if instruction.opcode == "selp":
            return self._chosen(instruction)
        read = self._of(_read_by(instruction)) or "0"
        if instruction.opcode in _TOGETHER and read != "0":
            here = builder.name(f"and i32 {read}, {mask_word(builder, lowering.mask)}")
            is_some = builder.name(f"icmp ne i32 {here}, 0")
            return builder.name(f"select i1 {is_some}, i32 -1, i32 0")
        return read

    def _chosen(self, instruction: Instruction) -> str:
        """selp: the lanes of what was chosen, and of what decided."""
        builder = self._lowering.builder
        _, *sources = instruction.operands
        one, other, decides = (self._of(_registers(each)) or "0" for each in sources)
        flag = self._lowering.read(sources[2], ScalarType.PRED)
        flags = mask_word(builder, builder.vector(flag))
        chosen = builder.name(f"and i32 {one}, {flags}")
        inverse = builder.name(f"xor i32 {flags}, -1")
        rest = builder.name(f"and i32 {other}, {inverse}")
        return builder.name(f"or i32 {builder.name(f'or i32 {chosen}, {rest}')}, {decides}")

    def _of(self, registers: Iterable[Register]) -> str:
        """The lanes in which any of these is undefined; "" if none can be."""
        builder = self._lowering.builder
        found = ""
        for name in dict.fromkeys(each.name for each in registers):
            if name in self._tracked:
                word = builder.name(f"load i32, ptr {_place(name)}")
                found = builder.name(f"or i32 {found}, {word}") if found else word
        return found


def _tracked(body: Iterable[Instruction], unsafe: Iterable[Instruction]) -> set[str]:
    """The registers that may hold what was read of nobody."""
    found = {name for each in unsafe for name in _read_into(each)}
    followed = [each for each in body if each.opcode not in _NOT_FOLLOWED]
    size = -1
    while size != len(found):
        size = len(found)
        for each in followed:
            if any(register.name in found for register in _read_by(each)):
                found.update(_read_into(each))
    return found


def _read_into(instruction: Instruction) -> list[str]:
    """The registers that hold what was read; whether a lane was in reach is never undefined."""
    written = defs(instruction)
    if instruction.opcode == "shfl":
        written = tuple(each for each in written if each.type is not ScalarType.PRED)
    return [each.name for each in written]


def _read_by(instruction: Instruction) -> tuple[Register, ...]:
    """What an instruction reads, without what it leaves where its guard is false."""
    if instruction.guard is None:
        return uses(instruction)
    return (*uses(replace(instruction, guard=None)), instruction.guard.register)


def _registers(operand: Operand) -> tuple[Register, ...]:
    if isinstance(operand, Negated):
        return (operand.register,)
    return (operand,) if isinstance(operand, Register) else ()


def _place(name: str) -> str:
    return f'%"={name}.undefined"'
