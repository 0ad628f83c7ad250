"""Cellar. The new body of a function whose instructions are taken apart.

Parts that only compute are unguarded and write registers of their own. Parts that write memory or a
register of the program have the guard of the original instruction. If the instruction itself writes
its guard, the guard is copied first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from cudasync.ptx.ir import (
    Address,
    Guard,
    Instruction,
    Integer,
    Register,
    Sink,
    Span,
    Symbol,
    Variable,
    Vector,
)
from cudasync.ptx.liveness import defs
from cudasync.ptx.types import ScalarType, StateSpace

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Operand

T = ScalarType


class Parts:
    """Collects the new body of `function`, one instruction at a time; see `begin`."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._registers = dict(function.registers)
        self._body: list[Instruction] = []
        # The index in the new body at which each instruction of the old body begins.
        self._moved: list[int] = []
        self._whole: Instruction
        self._guard: Guard | None = None

    def begin(self, instruction: Instruction) -> None:
        """Start `instruction`: everything emitted from here on belongs to it."""
        self._moved.append(len(self._body))
        self._whole = instruction
        self._guard = instruction.guard

    @property
    def has_begun(self) -> bool:
        """Whether parts of this instruction have been emitted."""
        return len(self._body) > self._moved[-1]

    def keep(self) -> None:
        """Keep the instruction as it is."""
        self._body.append(self._whole)

    @property
    def whole(self) -> Instruction:
        """The instruction that is being taken apart."""
        return self._whole

    def replace(self, instruction: Instruction) -> None:
        """Replace the instruction by another one."""
        self._body.append(instruction)

    def active(self) -> Register:
        """The guard as a predicate of its own; true if there is none."""
        guard = self._guard
        if guard is None:
            return self.compute("mov.pred", Integer(1))
        if guard.negated:
            return self.compute("not.pred", guard.register)
        return self.compute("mov.pred", guard.register)

    def emit_under(self, guard: Register, name: str, operands: tuple[Operand, ...]) -> None:
        """Emit the dotted instruction `name` under a guard."""
        self.emit_parts(*_taken_apart(name), operands, guard=Guard(guard, False))

    def result(self) -> Function:
        """The function with its new body."""
        function = self._function
        moved = [*self._moved, len(self._body)]
        return replace(
            function,
            registers=self._registers,
            body=tuple(self._body),
            labels={name: moved[index] for name, index in function.labels.items()},
            locations=tuple(replace(each, index=moved[each.index]) for each in function.locations),
        )

    def register(self, type_: ScalarType) -> Register:
        """A new register with a name that no text can contain."""
        register = Register(f"%part {len(self._registers)}", type_)
        self._registers[register.name] = register
        return register

    def compute(self, name: str, *sources: Operand, type_: ScalarType | None = None) -> Register:
        """Emit the dotted instruction `name` into a new register, of its first type or `type_`."""
        opcode, modifiers, types = _taken_apart(name)
        target = self.register(type_ or types[0])
        self.emit_parts(opcode, modifiers, types, (target, *sources))
        return target

    def emit(self, name: str, *operands: Operand) -> None:
        """Emit the dotted instruction `name`, unguarded."""
        self.emit_parts(*_taken_apart(name), operands)

    def settle(self, name: str, *operands: Operand) -> None:
        """Emit the dotted instruction `name` under the instruction's own guard."""
        self._protect_guard()
        self.emit_parts(*_taken_apart(name), operands, guard=self._guard)

    def write(self, target: Operand, source: Operand, type_: ScalarType) -> None:
        """Move a result to a register of the program, unless the program discards it."""
        if not isinstance(target, Sink):
            self.settle(f"mov.{type_.value}", target, source)

    def give(self, results: Vector, value: Operand, type_: ScalarType) -> None:
        """Write the value that a call returns to its result: a register or a .param variable."""
        for target in results.elements:
            if isinstance(target, Symbol):
                self.settle(f"st.param.{type_.value}", Address(target), value)
            else:
                self.write(target, value, type_)

    def emit_parts(
        self,
        opcode: str,
        modifiers: tuple[str, ...],
        types: tuple[ScalarType, ...],
        operands: tuple[Operand, ...],
        *,
        guard: Guard | None = None,
    ) -> None:
        whole = self._whole
        self._body.append(
            Instruction(opcode, modifiers, types, operands, guard, whole.span, whole.text)
        )

    def _protect_guard(self) -> None:
        guard = self._guard
        if guard is not None and guard.register in defs(self._whole):
            self._guard = Guard(self.compute("mov.pred", guard.register), guard.negated)

    def halves(self, operand: Operand, part: ScalarType) -> tuple[Operand, Operand]:
        """The low and the high half of an operand twice as wide as `part`."""
        bits = part.bits
        if isinstance(operand, Integer):
            value = operand.value
            return Integer(value & (1 << bits) - 1), Integer(value >> bits & (1 << bits) - 1)
        low, high = self.register(T(f"b{bits}")), self.register(T(f"b{bits}"))
        self.emit(f"mov.b{2 * bits}", Vector((low, high)), operand)
        return low, high

    def join(self, target: Operand, low: Operand, high: Operand, part: ScalarType) -> None:
        """Write two halves into a result of the program."""
        self.settle(f"mov.b{2 * part.bits}", target, Vector((low, high)))


Rule: TypeAlias = Callable[[Parts, Instruction], bool]
"""Takes an instruction apart, or returns False and leaves it alone."""


def _taken_apart(name: str) -> tuple[str, tuple[str, ...], tuple[ScalarType, ...]]:
    opcode, *suffixes = name.split(".")
    known = {each.value for each in ScalarType}
    return (
        opcode,
        tuple(each for each in suffixes if each not in known),
        tuple(ScalarType(each) for each in suffixes if each in known),
    )


def room(name: str, size_bytes: int) -> Variable:
    """An extra variable of a module, full of zeros; no text can contain its name."""
    return Variable(
        name,
        StateSpace.GLOBAL,
        T.B8,
        size_bytes,
        16,
        is_array=True,
        is_extern=False,
        initial=(),
        span=Span(1, 1),
    )


def name_of(instruction: Instruction, *types: ScalarType) -> str:
    """The dotted name of `instruction` with other types."""
    return ".".join((instruction.opcode, *instruction.modifiers, *(each.value for each in types)))
