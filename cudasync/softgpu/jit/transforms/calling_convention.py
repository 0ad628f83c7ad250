"""Cellar, jit. Makes calls uniform: every argument and result goes through .param memory.

PTX lets a device function take and return registers, and a call name registers and constants. Here
both become .param variables, with loads and stores around the call and at each ret. What remains
of a call is a function and the places of its arguments. `passed_values` finds the variables that
need no memory of a thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Instruction, Register, Sink, Symbol, Variable, Vector
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Module, Operand

_SPACE = StateSpace.PARAM.value


def through_memory(function: Function, module: Module) -> Function:
    """The same function, with values in calls and register parameters moved to memory."""
    has_registers = any(
        each.name in function.registers for each in (*function.parameters, *function.results)
    )
    if not has_registers and not any(each.opcode == "call" for each in function.body):
        return function
    return _Rewriting(function, module).result()


class _Rewriting:
    def __init__(self, function: Function, module: Module) -> None:
        self._function = function
        self._callees = {each.name: each for each in module.functions}
        self._body: list[Instruction] = []
        self._variables: list[Variable] = []
        # The position in the new body of each instruction of the old one.
        self._moved: list[int] = []

    def result(self) -> Function:
        function = self._function
        registers = function.registers
        first = function.body[0] if function.body else None
        if first is not None:
            for each in function.parameters:
                if each.name in registers:
                    self._add(first, "ld", registers[each.name], Address(Symbol(each.name)))
        prologue = len(self._body)
        for instruction in function.body:
            self._moved.append(len(self._body))
            if instruction.opcode == "call":
                self._call(instruction)
            else:
                if instruction.opcode == "ret":
                    self._give(instruction, guarded=True)
                self._body.append(instruction)
        self._moved.append(len(self._body))
        if function.body:
            self._give(function.body[-1], guarded=False)
        labels = {name: self._moved[index] for name, index in function.labels.items()}
        if labels and prologue:
            # A loop back to the first instruction must not read the parameters again.
            assert all(index >= prologue for index in labels.values())
        return replace(
            function,
            body=tuple(self._body),
            labels=labels,
            variables=(*function.variables, *self._variables),
        )

    def _give(self, place: Instruction, *, guarded: bool) -> None:
        """Store the register results before a ret."""
        for each in self._function.results:
            register = self._function.registers.get(each.name)
            if register is not None:
                source = place if guarded else replace(place, guard=None)
                self._add(source, "st", Address(Symbol(each.name)), register)

    def _call(self, instruction: Instruction) -> None:
        results, callee, arguments, *more = instruction.operands
        assert isinstance(results, Vector)
        assert isinstance(arguments, Vector)
        known = self._callees.get(callee.name) if isinstance(callee, Symbol) else None
        taken: list[Operand] = []
        given: list[Operand] = []
        after: list[tuple[Register, str]] = []
        parameters = known.parameters if known else ()
        for parameter, argument in zip(parameters, arguments.elements, strict=False):
            if self._is_variable(argument):
                taken.append(argument)
                continue
            name = self._temporary(parameter)
            self._add(instruction, "st", Address(Symbol(name)), argument, parameter)
            taken.append(Symbol(name))
        for result, target in zip(known.results if known else (), results.elements, strict=False):
            if self._is_variable(target):
                given.append(target)
                continue
            name = self._temporary(result)
            given.append(Symbol(name))
            if isinstance(target, Register):
                after.append((target, name))
            else:
                assert isinstance(target, Sink), instruction.text
        if known is None:
            taken, given = list(arguments.elements), list(results.elements)
        self._body.append(
            replace(
                instruction, operands=(Vector(tuple(given)), callee, Vector(tuple(taken)), *more)
            )
        )
        for register, name in after:
            self._add(instruction, "ld", register, Address(Symbol(name)))

    def _is_variable(self, operand: Operand) -> bool:
        """Whether this is a .param variable, not a value."""
        return isinstance(operand, Symbol) and any(
            each.name == operand.name and each.space is StateSpace.PARAM
            for each in (*self._function.variables, *self._function.parameters)
        )

    def _temporary(self, like: Variable) -> str:
        name = f"call argument {len(self._variables)}"
        self._variables.append(replace(like, name=name, space=StateSpace.PARAM))
        return name

    def _add(
        self,
        place: Instruction,
        opcode: str,
        target: Operand,
        source: Operand,
        variable: Variable | None = None,
    ) -> None:
        """ld.param or st.param, at the place and under the guard of `place`."""
        register = target if isinstance(target, Register) else source
        if variable is not None:
            type_ = variable.type
        else:
            assert isinstance(register, Register)
            type_ = register.type
        self._body.append(
            Instruction(
                opcode, (_SPACE,), (type_,), (target, source), place.guard, place.span, place.text
            )
        )
