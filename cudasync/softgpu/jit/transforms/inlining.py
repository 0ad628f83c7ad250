"""Cellar, jit. Inlines the functions that a kernel cannot call.

A warp is suspended at barriers and resumes there, which only the kernel's own body can do. So a
function that may suspend, or that calls such a function, becomes part of its caller, once for each
call. Calls are uniform already (`calling_convention`): parameters and results are .param variables,
and the callee's become the caller's. A function that calls itself is not inlined.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import (
    Address,
    Guard,
    Instruction,
    Label,
    Negated,
    Pair,
    Register,
    Sink,
    Symbol,
    Vector,
)
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.semantics.memory_visibility import callee, callees, with_callers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudasync.ptx.ir import Function, Operand, SourceLocation, Variable

# A kernel with more instructions than this is not extended further.
_MOST_INSTRUCTIONS = 1 << 16


def inline(
    caller: Function, functions: Mapping[str, Function], must: Callable[[Function], bool]
) -> Function:
    """`caller` with all functions inlined for which `must` is true, and with their callers."""
    wanted = _that_reach(functions, must)
    number = 0
    while len(caller.body) < _MOST_INSTRUCTIONS:
        index = next(
            (i for i, each in enumerate(caller.body) if callee(each) in wanted),
            None,
        )
        if index is None:
            break
        called = functions[str(callee(caller.body[index]))]
        caller = _Inlining(caller, called, index, number).result()
        number += 1
    return caller


def _that_reach(functions: Mapping[str, Function], must: Callable[[Function], bool]) -> set[str]:
    """The functions that reach a function for which `must` is true, and do not reach themselves."""
    calls = {
        name: {each for each in callees(function) if each in functions}
        for name, function in functions.items()
    }
    found = with_callers((name for name, each in functions.items() if must(each)), functions)
    return {name for name in found if name not in _reached(calls, name)}


def _reached(calls: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(calls[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += calls[name]
    return seen


class _Inlining:
    """Replaces one call, at `index` in the body of `caller`."""

    def __init__(self, caller: Function, callee: Function, index: int, number: int) -> None:
        self._caller = caller
        self._callee = callee
        self._index = index
        self._suffix = f" of call {number}"
        self._call = caller.body[index]
        results, _, arguments = self._call.operands[:3]
        assert isinstance(results, Vector)
        assert isinstance(arguments, Vector)
        formal = (*callee.parameters, *callee.results)
        actual = (*arguments.elements, *results.elements)
        # The caller's names for the callee's parameters, results and variables.
        self._names = {
            each.name: given.name
            for each, given in zip(formal, actual, strict=True)
            if isinstance(given, Symbol)
        }
        for variable in callee.variables:
            if variable.space is not StateSpace.SHARED:
                self._names[variable.name] = variable.name + self._suffix

    def result(self) -> Function:
        caller, callee, index = self._caller, self._callee, self._index
        after = f"behind{self._suffix}"
        body = [self._moved(each, after) for each in callee.body]
        guard = self._call.guard
        if guard is not None:
            skip = Guard(guard.register, not guard.negated)
            body.insert(0, _branch(self._call, after, skip))
        begin = index + (guard is not None)
        grown = len(body) - 1
        labels = {
            name: place + (grown if place > index else 0) for name, place in caller.labels.items()
        }
        labels |= {name + self._suffix: begin + place for name, place in callee.labels.items()}
        labels[after] = index + len(body)
        registers = {each.name: each for each in map(self._register, callee.registers.values())}
        return replace(
            caller,
            registers=caller.registers | registers,
            variables=(*caller.variables, *self._variables()),
            body=(*caller.body[:index], *body, *caller.body[index + 1 :]),
            labels=labels,
            tables=caller.tables
            | {
                name + self._suffix: tuple(label + self._suffix for label in table)
                for name, table in callee.tables.items()
            },
            locations=self._locations(begin, grown),
        )

    def _variables(self) -> list[Variable]:
        """The callee's own variables; a shared variable stays one, however often inlined."""
        there = {each.name for each in self._caller.variables}
        return [
            replace(each, name=self._names.get(each.name, each.name))
            for each in self._callee.variables
            if each.space is not StateSpace.SHARED or each.name not in there
        ]

    def _locations(self, begin: int, grown: int) -> tuple[SourceLocation, ...]:
        before = [each for each in self._caller.locations if each.index <= self._index]
        behind = [each for each in self._caller.locations if each.index > self._index]
        inside = [replace(each, index=each.index + begin) for each in self._callee.locations]
        return (*before, *inside, *(replace(each, index=each.index + grown) for each in behind))

    def _moved(self, instruction: Instruction, after: str) -> Instruction:
        guard = instruction.guard
        if guard is not None:
            guard = Guard(self._register(guard.register), guard.negated)
        if instruction.opcode == "ret":
            return _branch(instruction, after, guard)
        operands = tuple(map(self._operand, instruction.operands))
        return replace(instruction, operands=operands, guard=guard)

    def _register(self, register: Register) -> Register:
        return Register(register.name + self._suffix, register.type)

    def _operand(self, operand: Operand) -> Operand:
        match operand:
            case Register():
                return self._register(operand)
            case Negated(register=register):
                return Negated(self._register(register))
            case Pair(first=first, second=second):
                return Pair(self._half(first), self._half(second))
            case Vector(elements=elements):
                return Vector(tuple(map(self._operand, elements)))
            case Label(name=name):
                return Label(name + self._suffix)
            case Symbol(name=name):
                return replace(operand, name=self._names.get(name, name))
            case Address(base=Register() as base):
                return replace(operand, base=self._register(base))
            case Address(base=Symbol() as base):
                name = self._names.get(base.name, base.name)
                return replace(operand, base=replace(base, name=name))
        return operand

    def _half(self, operand: Register | Sink) -> Register | Sink:
        return self._register(operand) if isinstance(operand, Register) else operand


def _branch(place: Instruction, label: str, guard: Guard | None) -> Instruction:
    """A bra at the source line of `place`."""
    return Instruction("bra", (), (), (Label(label),), guard, place.span, place.text)
