"""Cellar, jit. One register for each value: registers that PTX uses again are told apart.

`add.s64 %rd1, %rd1, %rd2;` often turns a base into an address. The register then holds values of
two shapes, and would be varying. A web is a set of definitions that share a use; definitions of
one register in different webs have nothing to do with each other, so each web gets a name.

Reaching definitions, by forward data-flow over blocks; sets are the bits of an integer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.cfg import ControlFlow
from cudasync.ptx.ir import Address, Guard, Negated, Operand, Pair, Register, Vector
from cudasync.ptx.liveness import defs, uses

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx.ir import Function, Instruction

# Where a register is set before the first instruction: to zero.
_ENTRY = -1


def split_webs(function: Function) -> Function:
    """The same function, with a register of its own for each web."""
    positions: dict[str, list[int]] = {}
    for position, instruction in enumerate(function.body):
        for register in defs(instruction):
            positions.setdefault(register.name, []).append(position)
    repeated = {name: found for name, found in positions.items() if len(found) > 1}
    if not repeated:
        return function
    webs = _Webs(function, repeated)
    registers = dict(function.registers)

    def renamed(register: Register, position: int) -> Register:
        name = webs.name(register.name, position)
        if name == register.name:
            return register
        return registers.setdefault(name, Register(name, register.type))

    body = tuple(
        _rewrite(instruction, position, webs, renamed)
        for position, instruction in enumerate(function.body)
    )
    return replace(function, body=body, registers=registers)


class _Webs:
    """The definitions of registers that have several, joined where a use sees two of them."""

    def __init__(self, function: Function, repeated: dict[str, list[int]]) -> None:
        self._repeated = repeated
        self._definitions = [
            (name, position) for name in repeated for position in (_ENTRY, *repeated[name])
        ]
        self._bit = {definition: 1 << n for n, definition in enumerate(self._definitions)}
        self._all_of = {
            name: sum(self._bit[name, position] for position in (_ENTRY, *found))
            for name, found in repeated.items()
        }
        self._parent = {definition: definition for definition in self._definitions}
        # The definition that each use of a register sees, one of them if there are several.
        self._seen: dict[tuple[str, int], tuple[str, int]] = {}
        self._settle(function)
        # Which web keeps the register's name: the one that the entry is in, else the first.
        self._names: dict[tuple[str, int], str] = {}
        for name, found in repeated.items():
            for position in (_ENTRY, *found):
                root = self._root((name, position))
                if position == _ENTRY and all(self._root((name, other)) != root for other in found):
                    continue
                count = sum(1 for known, _ in self._names if known == name)
                self._names.setdefault(root, f"{name}.{count}" if count else name)

    def name(self, register: str, position: int) -> str:
        """The name of what the instruction at `position` defines."""
        if register not in self._repeated:
            return register
        return self._names[self._root((register, position))]

    def seen(self, register: str, position: int) -> str:
        """The name of what the instruction at `position` reads."""
        found = self._seen.get((register, position))
        # What only ever sees the entry's zero keeps the name as well.
        return register if found is None else self._names.get(self._root(found), register)

    def _root(self, definition: tuple[str, int]) -> tuple[str, int]:
        while self._parent[definition] != definition:
            self._parent[definition] = self._parent[self._parent[definition]]
            definition = self._parent[definition]
        return definition

    def _settle(self, function: Function) -> None:
        flow = ControlFlow(function)
        entry = sum(self._bit[name, _ENTRY] for name in self._repeated)
        reaching = [0] * len(flow.blocks)
        reaching[0] = entry
        waiting = [0]
        visited: set[int] = set()
        while waiting:
            index = waiting.pop()
            visited.add(index)
            block = flow.blocks[index]
            leaving = self._pass(function, block.start, block.end, reaching[index])
            for successor in block.successors:
                if successor == flow.exit:
                    continue
                joined = reaching[successor] | leaving
                if joined != reaching[successor] or successor not in visited:
                    reaching[successor] = joined
                    waiting.append(successor)
        for index in visited:
            block = flow.blocks[index]
            self._pass(function, block.start, block.end, reaching[index], join=True)

    def _pass(
        self, function: Function, start: int, end: int, reaching: int, *, join: bool = False
    ) -> int:
        """Carry definitions through instructions; with `join`, note what each use sees."""
        for position in range(start, end):
            instruction = function.body[position]
            if join:
                for register in uses(instruction):
                    if register.name in self._repeated:
                        self._join(register.name, position, reaching)
            for register in defs(instruction):
                everything = self._all_of.get(register.name)
                if everything is None:
                    continue
                if instruction.guard is None:
                    reaching &= ~everything
                elif join:
                    # Where the guard is false the old value stays: one web with the new.
                    self._unite((register.name, position), self._seen[register.name, position])
                reaching |= self._bit[register.name, position]
        return reaching

    def _join(self, name: str, position: int, reaching: int) -> None:
        found = reaching & self._all_of[name]
        first: tuple[str, int] | None = None
        while found:
            lowest = found & -found
            found ^= lowest
            definition = self._definitions[lowest.bit_length() - 1]
            if first is None:
                first = definition
            else:
                self._unite(first, definition)
        if first is not None:
            self._seen[name, position] = first

    def _unite(self, first: tuple[str, int], second: tuple[str, int]) -> None:
        self._parent[self._root(first)] = self._root(second)


def _rewrite(
    instruction: Instruction,
    position: int,
    webs: _Webs,
    renamed: Callable[[Register, int], Register],
) -> Instruction:
    """The instruction with every register under the name of its web."""

    def read(register: Register) -> Register:
        name = webs.seen(register.name, position)
        return register if name == register.name else replace(register, name=name)

    def written(register: Register) -> Register:
        return renamed(register, position)

    has_result = bool(defs(instruction))
    operands = tuple(
        _mapped(operand, written if has_result and index == 0 else read)
        for index, operand in enumerate(instruction.operands)
    )
    guard = instruction.guard
    if guard is not None:
        guard = Guard(read(guard.register), guard.negated)
    return replace(instruction, operands=operands, guard=guard)


def _mapped(operand: Operand, mapping: Callable[[Register], Register]) -> Operand:
    match operand:
        case Register():
            return mapping(operand)
        case Address(base=Register() as base):
            return replace(operand, base=mapping(base))
        case Vector(elements=elements):
            return Vector(tuple(_mapped(each, mapping) for each in elements))
        case Pair(first=first, second=second):
            return Pair(
                mapping(first) if isinstance(first, Register) else first,
                mapping(second) if isinstance(second, Register) else second,
            )
        case Negated(register=register):
            return Negated(mapping(register))
        case _:
            return operand
