"""Floor 0. The slots of the flow that an instruction's operands stand for.

A register has a slot for each of its webs, a variable in memory has the slot of its cell, and the
address of a variable is a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.access_analysis.flow_graph import LOCAL, SHARED, Flow
from cudasync.ptx.access_analysis.pointer_arithmetic import FarShifts
from cudasync.ptx.ir import Address, Operand, Register, Symbol, Vector
from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.ptx.webs import Webs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Function, Instruction


class OperandSlots:
    """The slots of the operands of one instruction of `function`, the instruction at `_index`."""

    def __init__(self, flow: Flow, function: Function) -> None:
        self._flow = flow
        self._function = function
        self._webs = Webs(function)
        self._far_shifts = FarShifts(function, self._webs)
        # The instruction being written.
        self._index = 0
        self._in_function = {
            each.name: each
            for each in (*function.parameters, *function.results, *function.variables)
        }

    def _held(self, operand: Operand, webs: dict[tuple[int, str], int] | None = None) -> int:
        """The slot of an argument: the contents of a .param variable, or the value itself."""
        if isinstance(operand, Register):
            return self._register(operand, self._webs.used if webs is None else webs)
        if isinstance(operand, Symbol) and operand.name in self._in_function:
            return self._flow.cell_slots[self._flow.cell(self._function, operand.name)]
        return (self._slots([operand]) or [self._flow.constant(0)])[0]

    def _cell(self, instruction: Instruction, address: Operand) -> int | None:
        """The cell of an access, if the instruction or the address names the cell."""
        match instruction.space:
            case StateSpace.LOCAL:
                return LOCAL
            case StateSpace.SHARED:
                return SHARED
        if isinstance(address, Address) and isinstance(address.base, Symbol):
            variable = self._in_function.get(address.base.name)
            if variable is not None and variable.space is StateSpace.PARAM:
                return self._flow.cell(self._function, variable.name)
        return None

    def _address(self, operand: Operand) -> int:
        """The slot of an address. A number that is used as an address may be anything."""
        slots = self._slots([operand]) if isinstance(operand, Address) else []
        return slots[0] if slots else self._flow.constant(self._flow.origins.any)

    @property
    def _line(self) -> int:
        return self._function.body[self._index].span.line

    def _slots_at(self, index: int, operands: Iterable[Operand]) -> list[int]:
        """`_slots` of operands that another instruction uses."""
        here, self._index = self._index, index
        try:
            return self._slots(operands)
        finally:
            self._index = here

    def _slots(self, operands: Iterable[Operand]) -> list[int]:
        """The slots of all values that the operands may derive from."""
        found: list[int] = []
        for operand in operands:
            match operand:
                case Register(type=type_):
                    if type_ is not ScalarType.PRED:
                        found.append(self._register(operand, self._webs.used))
                case Symbol(name=name):
                    found.append(self._flow.constant(self._symbol(name)))
                case Address(base=Register() | Symbol() as base):
                    found += self._slots([base])
                case Vector(elements=elements):
                    found += self._slots(elements)
        return found

    def _register(self, register: Register, webs: dict[tuple[int, str], int]) -> int:
        """The slot of a register as this instruction uses or defines it."""
        web = webs.get((self._index, register.name))
        name = register.name if web is None else f"{register.name}@{web}"
        return self._flow.register(self._function, name)

    def _used(self, register: Register) -> int:
        return self._register(register, self._webs.used)

    def _defined(self, register: Register) -> int:
        return self._register(register, self._webs.defined)

    def _symbol(self, name: str) -> int:
        """The set for the address of a symbol. Addresses of functions lead nowhere."""
        flow = self._flow
        variable = self._in_function.get(name)
        if variable is None:
            outer = flow.variables.get(name)
            return flow.origins.heap if outer is None else flow.variable_address(outer)
        match variable.space:
            case StateSpace.LOCAL:
                return flow.origins.cell_bit(LOCAL)
            case StateSpace.SHARED:
                return flow.origins.cell_bit(SHARED)
            case StateSpace.PARAM:
                return flow.origins.cell_bit(flow.cell(self._function, name))
        # A .global of the function itself: no other code has its address.
        return flow.origins.heap
