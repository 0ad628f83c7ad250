"""Cellar, jit. Follows values that lanes have read from missing lanes, until they matter.

A shuffle from a lane that has ended, is not in the block, or is not in the mask, yields an
undefined value (PTX ISA, shfl.sync). Programs read such values and drop them. So each register that
may hold one has a word with the lanes that do. Values computed from it are undefined, too. It is
reported if it is stored, is an address, or decides a branch. A function receives undefined values
and returns them (`undefined_arguments`). Words are reset behind a barrier of the block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Negated, Register
from cudasync.ptx.liveness import defs, uses
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.convergence.barriers import LIVING_NAME
from cudasync.softgpu.jit.convergence.functions import DECLARATIONS, FUNCTIONS, UNDEFINED_NAME
from cudasync.softgpu.jit.convergence.undefined_arguments import UndefinedArguments
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_WHO: Final = "ptr %job, i32 %ctaid.x, i32 %ctaid.y, i32 %ctaid.z, i32 %warp"
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
        self._variables = variables = UndefinedArguments(lowering.function, lowering.program)
        found = _tracked(lowering.function.body, unsafe, variables)
        self._tracked = found & set(names)
        # The lanes to which the current shuffle gives an undefined value.
        self._shuffled = ""
        builder = lowering.builder
        for place in sorted(map(_place, self._tracked)):
            builder.allocations.append(f"  {place} = alloca i32")
            builder.emit(f"store i32 0, ptr {place}")
        if self._tracked or variables.is_on:
            variables.begin(builder)

    def begin(self, instruction: Instruction) -> None:
        """Before an instruction: report an undefined value that it reads, if that matters."""
        self._shuffled = ""
        variables = self._variables
        if variables.is_moved(instruction):
            return
        builder, lowering = self._lowering.builder, self._lowering
        if instruction.opcode == "call":
            given, _ = variables.called_with(instruction)
            is_entered = variables.is_entered(instruction)
            places = (
                [] if is_entered else [word for name in given for word in variables.words(name)]
            )
            read = self._any_of([builder.name(each) for each in places])
        else:
            read = self._of(_read_by(instruction)) if instruction.opcode in _MATTERS else ""
        if not read:
            return
        harmed = builder.name(f"and i32 {read}, {mask_word(builder, lowering.mask)}")
        builder.functions.update(FUNCTIONS)
        builder.declarations.update(DECLARATIONS)
        shuffle = builder.name(f"load i64, ptr {variables.line}")
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
        place = self._variables.line
        before = builder.name(f"load i64, ptr {place}")
        line = f"select i1 {is_some}, i64 {instruction.span.line}, i64 {before}"
        builder.emit(f"store i64 {builder.name(line)}, ptr {place}")

    def end(self, instruction: Instruction) -> None:
        """After an instruction: its result is as undefined as the values that it read."""
        if self._variables.is_moved(instruction):
            self._move(instruction)
            return
        written = [each for each in _read_into(instruction) if each in self._tracked]
        if written:
            read = self._shuffled or self._result_of(instruction)
            self._put(read, [_place(name) for name in dict.fromkeys(written)])

    def arguments(self, operands: Sequence[Operand]) -> list[str]:
        """What a call of a function hands on, beside the operands themselves."""
        return self._variables.arguments(operands)

    def _move(self, instruction: Instruction) -> None:
        """A load or store of a .param variable moves undefined lanes with the values."""
        builder = self._lowering.builder
        for value, words in self._variables.elements(instruction):
            places = [builder.name(each) for each in words]
            if instruction.opcode == "st":
                self._put(self._of(_registers(value)) or "0", places)
            elif isinstance(value, Register) and value.name in self._tracked:
                self._put(self._any_of(places) or "0", [_place(value.name)])

    def _put(self, word: str, places: Iterable[str]) -> None:
        """Set the active lanes' bits of words to those of `word`."""
        builder = self._lowering.builder
        mask = mask_word(builder, self._lowering.mask)
        new = builder.name(f"and i32 {word}, {mask}")
        others = builder.name(f"xor i32 {mask}, -1")
        for place in places:
            old = builder.name(f"load i32, ptr {place}")
            kept = builder.name(f"and i32 {old}, {others}")
            builder.emit(f"store i32 {builder.name(f'or i32 {kept}, {new}')}, ptr {place}")

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
        names = dict.fromkeys(each.name for each in registers)
        return self._any_of([_place(name) for name in names if name in self._tracked])

    def _any_of(self, places: Iterable[str]) -> str:
        """The lanes with a bit in one of these words; "" of none."""
        builder = self._lowering.builder
        found = ""
        for place in places:
            word = builder.name(f"load i32, ptr {place}")
            found = builder.name(f"or i32 {found}, {word}") if found else word
        return found


def _tracked(
    body: Iterable[Instruction], unsafe: Iterable[Instruction], variables: UndefinedArguments
) -> set[str]:
    """The registers and .param variables that may hold an undefined value."""
    found = {name for each in unsafe for name in _read_into(each)} | variables.received
    calls = [each for each in body if each.opcode == "call" and variables.is_on]
    # Functions may have undefined values of their own.
    found.update(name for each in calls for name in variables.called_with(each)[1])
    moves = [each for each in body if variables.is_moved(each)]
    followed = [each for each in body if each.opcode not in _NOT_FOLLOWED]
    size = -1
    while size != len(found):
        size = len(found)
        for each in moves:
            name = variables.name_in(each)
            if each.opcode == "st" and any(used.name in found for used in _read_by(each)):
                found.add(name)
            elif each.opcode == "ld" and name in found:
                found.update(_read_into(each))
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
