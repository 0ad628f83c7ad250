"""Cellar. vprintf and __assertfail become calls that leave a record; see `printf_functions`.

If the format is visibly a constant, the number of its arguments is known, and so is the result of
vprintf. Otherwise the record keeps as many bytes as the function has local memory, because
compilers put arguments there, and the result is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Integer, Register, Symbol, Vector
from cudasync.ptx.liveness import defs
from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.expansion.rewriter import room
from cudasync.softgpu.expansion.runtime_calls.printf_functions import recorder
from cudasync.softgpu.interface import printf_arguments
from cudasync.softgpu.interface.printf_buffer import (
    CAPACITY,
    HEADER_BYTES,
    MOST_ARGUMENT_BYTES,
    RECORDERS,
    VARIABLE,
    Kind,
)
from cudasync.softgpu.semantics.memory_visibility import callee, callees

if TYPE_CHECKING:
    from collections.abc import Container

    from cudasync.ptx.ir import Function, Instruction, Module, Operand, Variable
    from cudasync.softgpu.expansion.rewriter import Parts

T = ScalarType
_PRINTS, _ASSERTS = "vprintf", "__assertfail"


def output() -> Variable:
    """The variable that holds the records."""
    return room(VARIABLE, HEADER_BYTES + CAPACITY)


def prints(module: Module, defined: Container[str]) -> bool:
    """Whether `module` leaves records: it calls these functions without defining them."""
    leaving = {each for each in (_PRINTS, _ASSERTS) if each not in defined}
    return any(not leaving.isdisjoint(callees(function)) for function in module.functions)


class Printing:
    """Rewrites the calls of one module's functions."""

    def __init__(self, module: Module, defined: Container[str]) -> None:
        self._defined = defined
        # By kind: the first instruction that calls its function.
        self.called: dict[Kind, Instruction] = {}
        self._variables = {each.name: each for each in module.variables}

    def rewrite(
        self, parts: Parts, function: Function, index: int, instruction: Instruction
    ) -> bool:
        """Take apart a call of either function, at `index` in the body."""
        name = callee(instruction)
        if name not in (_PRINTS, _ASSERTS) or name in self._defined:
            return False
        results, _, arguments = instruction.operands[:3]
        assert isinstance(results, Vector)
        assert isinstance(arguments, Vector)
        given = arguments.elements
        if len(given) != (2 if name == _PRINTS else 5):
            return False
        if name == _ASSERTS:
            values = [_value(parts, each, wide) for each, wide in zip(given, "qqwq", strict=False)]
            self._call(parts, Kind.ASSERTION, values)
            return False
        text = self._format(function, index, given[0])
        count = printf_arguments.count(text) if text is not None else 0
        strings = printf_arguments.string_slots(text) if text is not None else 0
        size = 8 * count if text is not None else _local_bytes(function)
        address, first = (_value(parts, each, "q") for each in given)
        _read_once(parts, address)
        size = min(size, MOST_ARGUMENT_BYTES)
        strings &= (1 << size // 8) - 1
        self._call(parts, Kind.PRINT, [address, first, Integer(size), Integer(strings)])
        parts.give(results, Integer(count), T.B32)
        return True

    def _call(self, parts: Parts, kind: Kind, arguments: list[Operand]) -> None:
        self.called.setdefault(kind, parts.whole)
        parts.settle("call", Vector(()), Symbol(RECORDERS[kind]), Vector(tuple(arguments)))

    def recorders(self) -> tuple[Function, ...]:
        """The functions that the rewritten calls need."""
        return tuple(recorder(kind, place) for kind, place in self.called.items())

    def _format(self, function: Function, index: int, operand: Operand) -> bytes | None:
        """The characters that `operand` points to, if that is a constant string."""
        joins = set(function.labels.values())
        for place in range(index - 1, -1, -1):
            if place + 1 in joins:
                # The operand may also have been set elsewhere.
                break
            instruction = function.body[place]
            if isinstance(operand, Symbol):
                found = self._variables.get(operand.name)
                if found is not None:
                    return _characters(found, operand.offset)
                if instruction.opcode == "st" and instruction.operands[0] == Address(operand):
                    operand = instruction.operands[1]
            elif (
                isinstance(operand, Register)
                and operand in defs(instruction)
                and instruction.guard is None
            ):
                if instruction.opcode not in ("mov", "cvta"):
                    return None
                operand = instruction.operands[1]
        if isinstance(operand, Symbol) and operand.name in self._variables:
            return _characters(self._variables[operand.name], operand.offset)
        return None


def _characters(variable_: Variable, offset: int) -> bytes | None:
    values = [each.value & 0xFF for each in variable_.initial if isinstance(each, Integer)]
    if variable_.type.size != 1 or len(values) != len(variable_.initial):
        return None
    return bytes(values[offset:]).partition(b"\0")[0]


def _local_bytes(function: Function) -> int:
    sizes = sum(each.size for each in function.variables if each.space is StateSpace.LOCAL)
    return min(-(-sizes // 8) * 8, MOST_ARGUMENT_BYTES)


def _value(parts: Parts, operand: Operand, wide: str) -> Operand:
    """The value of an argument: of 64 bits ("q"), or of 32 ("w")."""
    type_ = "u64" if wide == "q" else "u32"
    if isinstance(operand, Symbol):
        return parts.compute(f"ld.param.{type_}", Address(operand))
    return parts.compute(f"mov.{type_}", operand)


def _read_once(parts: Parts, address: Operand) -> None:
    """Read the format once: if it cannot be read, that is an illegal access at this line."""
    assert isinstance(address, Register)
    parts.settle("ld.u8", parts.register(T.B32), Address(address))
