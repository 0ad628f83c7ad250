"""Cellar, jit. Follows values that lanes have read from missing lanes, until they matter.

A shuffle from a lane that has ended, is not in the block, or is not in the mask, yields an
undefined value (PTX ISA, shfl.sync). Programs read such values and drop them. So each register that
may hold one has a word with the lanes that do. Values computed from it are undefined, too. It is
reported if it is stored, is an address, or decides a branch. Words are reset behind a barrier of
the block, and calls are not followed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Negated, Register
from cudasync.ptx.liveness import defs, uses
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.convergence.barriers import LIVING_NAME
from cudasync.softgpu.jit.convergence.functions import DECLARATIONS, FUNCTIONS, UNDEFINED_NAME
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_WHO: Final = "ptr %job, i32 %ctaid.x, i32 %ctaid.y, i32 %ctaid.z, i32 %warp"
_LINE: Final = '%"=undefined.line"'
# Instructions in which an undefined value does harm. Their results are not tracked.
_MATTERS: Final = frozenset({"st", "atom", "red", "stmatrix", "ld", "ldu", "bra", "brx"})
# Instructions that give lanes one result of all their values.
_TOGETHER: Final = frozenset({"vote", "redux", "match"})
_NOT_FOLLOWED: Final = frozenset({"ld", "ldu", "atom", "call", "ldmatrix", "wmma", "mma"})


class Undefined:
    """The registers of a function that may hold undefined lanes; `names` are all its registers."""

    def __init__(
        self, lowering: Lowering, names: Iterable[str], unsafe: Iterable[Instruction]
    ) -> None:
        """`unsafe` are the shuffles that may read from a missing lane."""
        self._lowering = lowering
        self._tracked = _tracked(lowering.function.body, unsafe) & set(names)
        # The lanes to which the current shuffle gives an undefined value.
        self._shuffled = ""
        builder = lowering.builder
        if self._tracked:
            for place in sorted(map(_place, self._tracked)):
                builder.allocations.append(f"  {place} = alloca i32")
                builder.emit(f"store i32 0, ptr {place}")
            builder.allocations.append(f"  {_LINE} = alloca i64")
            builder.emit(f"store i64 0, ptr {_LINE}")

    def begin(self, instruction: Instruction) -> None:
        """Before an instruction: report an undefined value that it reads, if that matters."""
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
        """Note that each lane reads from the lane `source`."""
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
        """After an instruction: its result is as undefined as the values that it read."""
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
        """selp: the undefined lanes of the selected operand, and of the predicate."""
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
        """The lanes in which any of these registers is undefined; "" if none can be."""
        builder = self._lowering.builder
        found = ""
        for name in dict.fromkeys(each.name for each in registers):
            if name in self._tracked:
                word = builder.name(f"load i32, ptr {_place(name)}")
                found = builder.name(f"or i32 {found}, {word}") if found else word
        return found


def _tracked(body: Iterable[Instruction], unsafe: Iterable[Instruction]) -> set[str]:
    """The registers that may hold an undefined value."""
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
    """The registers of the result, without a shuffle's predicate, which is never undefined."""
    written = defs(instruction)
    if instruction.opcode == "shfl":
        written = tuple(each for each in written if each.type is not ScalarType.PRED)
    return [each.name for each in written]


def _read_by(instruction: Instruction) -> tuple[Register, ...]:
    """The registers that an instruction reads, without the result that a false guard keeps."""
    if instruction.guard is None:
        return uses(instruction)
    return (*uses(replace(instruction, guard=None)), instruction.guard.register)


def _registers(operand: Operand) -> tuple[Register, ...]:
    if isinstance(operand, Negated):
        return (operand.register,)
    return (operand,) if isinstance(operand, Register) else ()


def _place(name: str) -> str:
    return f'%"={name}.undefined"'
