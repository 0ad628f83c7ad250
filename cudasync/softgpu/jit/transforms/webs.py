"""Cellar, jit. Gives each value its own register where PTX reuses one.

`add.s64 %rd1, %rd1, %rd2;` often turns a base into an address. The register then holds values of
two shapes, and would be varying. A web is a set of definitions that share a use. Definitions of
one register in different webs are independent, so each web gets a name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Guard, Negated, Operand, Pair, Register, Vector
from cudasync.ptx.liveness import defs
from cudasync.ptx.webs import Webs

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx.ir import Function, Instruction


def split_webs(function: Function) -> Function:
    """The same function, with a register of its own for each web."""
    webs = Webs(function, sees_entry=True)
    if not webs.defined:
        return function
    names = _names(webs)
    registers = dict(function.registers)

    def read(register: Register, position: int) -> Register:
        # A use that only ever sees the entry's zero keeps the register's name, too.
        web = webs.used.get((position, register.name))
        name = register.name if web is None else names.get(web, register.name)
        return register if name == register.name else replace(register, name=name)

    def written(register: Register, position: int) -> Register:
        web = webs.defined.get((position, register.name))
        name = register.name if web is None else names[web]
        if name == register.name:
            return register
        return registers.setdefault(name, Register(name, register.type))

    body = tuple(
        _rewrite(instruction, partial(read, position=index), partial(written, position=index))
        for index, instruction in enumerate(function.body)
    )
    return replace(function, body=body, registers=registers)


def _names(webs: Webs) -> dict[int, str]:
    """A name for each web. The web of the entry keeps the register's name, else the first web."""
    defined = set(webs.defined.values())
    names = {web: register for register, web in webs.at_entry.items() if web in defined}
    count = Counter(names.values())
    for position, register in sorted(webs.defined):
        web = webs.defined[position, register]
        if web not in names:
            names[web] = f"{register}.{count[register]}" if count[register] else register
            count[register] += 1
    return names


def _rewrite(
    instruction: Instruction,
    read: Callable[[Register], Register],
    written: Callable[[Register], Register],
) -> Instruction:
    """The instruction with every register under the name of its web."""
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
