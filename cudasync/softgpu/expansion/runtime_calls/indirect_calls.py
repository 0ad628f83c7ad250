"""Cellar. Functions as values: their addresses, and calls through registers.

The address of a function is a number that no memory can have, so a kernel that reads through it
fails with a report. A call through a register becomes a guarded call of each function that it may
mean: the functions whose address is taken somewhere and whose parameters have the sizes of the
arguments. If none matches, the call reads at the jump's target, which is an illegal access.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Integer, Label, Register, Symbol, SymbolAddress, Vector
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.interface.function_addresses import FIRST, address_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Function, Instruction, Module, Operand, Variable
    from cudasync.ptx.parsing.variables import Initial
    from cudasync.softgpu.expansion.rewriter import Parts

T = ScalarType


class Targets:
    """The functions of `module` by address, and the functions whose address is taken."""

    def __init__(self, module: Module) -> None:
        self._functions = {each.name: each for each in module.functions}
        self.addresses = {
            each.name: address_of(index) for index, each in enumerate(module.functions)
        }
        self._taken = {
            value.symbol
            for variable in _variables(module)
            for value in variable.initial
            if isinstance(value, SymbolAddress)
        }
        for function in module.functions:
            for instruction in function.body:
                self._taken.update(self._named(function, instruction))

    def variables(self, variables: Iterable[Variable]) -> tuple[Variable, ...]:
        """`variables` with numbers in place of function names in their initial values."""
        return tuple(
            replace(each, initial=tuple(self._number(value) for value in each.initial))
            if any(isinstance(value, SymbolAddress) for value in each.initial)
            else each
            for each in variables
        )

    def _number(self, value: Initial) -> Initial:
        if isinstance(value, SymbolAddress) and value.symbol in self.addresses:
            return Integer(value.bits(self.addresses[value.symbol]))
        return value

    def _named(self, function: Function, instruction: Instruction) -> set[str]:
        """The functions whose addresses an instruction uses as values."""
        if instruction.opcode == "call":
            operands = tuple(_elements(instruction.operands[2]))
        else:
            operands = tuple(each for top in instruction.operands for each in _elements(top))
        named = {each.name for each in operands if isinstance(each, Symbol)}
        named.intersection_update(self._functions)
        if named:
            named.difference_update(
                each.name for each in (*function.variables, *function.parameters)
            )
        return named

    def rewrite(self, parts: Parts, function: Function, instruction: Instruction) -> bool:
        """Take apart a call through a register; replace names of functions by numbers."""
        if instruction.opcode == "call" and isinstance(instruction.operands[1], Register):
            self._call(parts, function, instruction)
            return True
        names = self._named(function, instruction)
        if not names or instruction.opcode == "call":
            return False
        operands = tuple(
            Integer(self.addresses[each.name] + each.offset)
            if isinstance(each, Symbol) and each.name in names
            else each
            for each in instruction.operands
        )
        parts.replace(replace(instruction, operands=operands))
        return True

    def _call(self, parts: Parts, function: Function, instruction: Instruction) -> None:
        results, callee, arguments, *more = instruction.operands
        assert isinstance(callee, Register)
        assert isinstance(results, Vector)
        assert isinstance(arguments, Vector)
        # The register may also be a result.
        where = parts.compute("mov.b64", callee)
        left = parts.active()
        for target in self._meant(function, results, arguments, more):
            is_it = parts.compute(
                "setp.eq.b64", where, Integer(self.addresses[target.name]), type_=T.PRED
            )
            taken = parts.compute("and.pred", is_it, left)
            operands = (results, Symbol(target.name), arguments)
            parts.emit_under(taken, "call", operands)
            left = parts.compute("and.pred", left, parts.compute("not.pred", is_it))
        astray = parts.compute("or.b64", where, Integer(FIRST))
        byte = parts.register(T.B32)
        parts.emit_under(left, "ld.u8", (byte, Address(astray)))

    def _meant(
        self, function: Function, results: Vector, arguments: Vector, more: list[Operand]
    ) -> list[Function]:
        names = self._taken
        if more:
            (table,) = more
            assert isinstance(table, Label)
            names = set(function.tables.get(table.name, ())) or names
        found = [self._functions[name] for name in sorted(names) if name in self._functions]
        return [
            each
            for each in found
            if not each.is_declaration
            and not each.is_kernel
            and _fits(function, each.parameters, arguments)
            and _fits(function, each.results, results)
        ]


def _fits(function: Function, formal: tuple[Variable, ...], actual: Vector) -> bool:
    if len(formal) != len(actual.elements):
        return False
    sizes = {each.name: each.size for each in (*function.variables, *function.parameters)}
    for wanted, given in zip(formal, actual.elements, strict=True):
        if isinstance(given, Register) and given.type.size != wanted.size:
            return False
        if isinstance(given, Symbol) and sizes.get(given.name, wanted.size) != wanted.size:
            return False
    return True


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _variables(module: Module) -> list[Variable]:
    return [*module.variables, *(each for f in module.functions for each in f.variables)]
