"""Cellar, jit. Renames shared variables of different functions that have the same name.

The shared memory of a kernel and its functions is laid out by name, and a function may be inlined
into its kernel. So a function's own variable is renamed if another variable has its name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Symbol
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx.ir import Function, Module, Operand


def told_apart(
    module: Module, kernel: Function, functions: Mapping[str, Function]
) -> dict[str, Function]:
    """The device functions, by name; functions without a clash are unchanged."""
    count = Counter(each.name for each in module.variables)
    for function in (kernel, *functions.values()):
        count.update(_shared(function))
    changed = dict(functions)
    for name, function in functions.items():
        names = {each: f"{each} of {name}" for each in _shared(function) if count[each] > 1}
        if names:
            changed[name] = _renamed(function, names)
    return changed


def _shared(function: Function) -> set[str]:
    return {each.name for each in function.variables if each.space is StateSpace.SHARED}


def _renamed(function: Function, names: Mapping[str, str]) -> Function:
    def operand(each: Operand) -> Operand:
        match each:
            case Symbol(name=name) if name in names:
                return replace(each, name=names[name])
            case Address(base=Symbol(name=name) as base) if name in names:
                return replace(each, base=replace(base, name=names[name]))
        return each

    return replace(
        function,
        variables=tuple(
            replace(each, name=names[each.name])
            if each.space is StateSpace.SHARED and each.name in names
            else each
            for each in function.variables
        ),
        body=tuple(
            replace(each, operands=tuple(map(operand, each.operands))) for each in function.body
        ),
    )
