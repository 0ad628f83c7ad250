"""Cellar. The shared variables that count for a kernel: those that its functions name.

A module's shared variables outside functions are those of all its kernels. With `nvcc -rdc=true`
the variables of device functions are there, too. As with ptxas, a kernel has memory for those that
it, or a function that it reaches, names. An address in the initial value of a variable also counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Symbol, SymbolAddress, Vector
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudasync.ptx.ir import Function, Module, Operand, Variable


def shared_of_module(module: Module, functions: Iterable[Function]) -> list[Variable]:
    """The shared variables of the module's own scope that these functions can name.

    Variables without a size stay: they are the launch's dynamic memory.
    """
    variables = [each for each in module.variables if each.space is StateSpace.SHARED]
    if not any(each.count for each in variables):
        return variables
    named = {
        name
        for function in functions
        for instruction in function.body
        for operand in instruction.operands
        for name in _names(operand)
    }
    named |= {
        value.symbol
        for variable in module.variables
        for value in variable.initial
        if isinstance(value, SymbolAddress)
    }
    return [each for each in variables if each.name in named or not each.count]


def _names(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Symbol):
        yield operand.name
    elif isinstance(operand, Address):
        yield from _names(operand.base)
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _names(element)
