"""Cellar. Instructions that stand for several simpler ones, expanded before either lowering.

The PTX ISA defines some instructions by parts: two halves in a register, four bytes, a vector of
atomics, a call through a register. They become those parts here, once for both lowerings, so that
the lowerings only know scalars. The parts keep the guard, the line and the text of their origin.

Each rule takes an instruction apart or leaves it alone. It leaves an instruction with a modifier
that it does not know, and the lowerings then refuse that instruction by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.errors import PtxError
from cudasync.ptx.liveness import defs, uses
from cudasync.softgpu.expansion.instructions import (
    cache_hints,
    compound_scalars,
    constant_space,
    find_nth_set,
    packed_arithmetic,
    packed_conversion,
    special_registers,
    vector_atomics,
    video,
)
from cudasync.softgpu.expansion.rewriter import Parts
from cudasync.softgpu.expansion.runtime_calls import device_malloc, graph_conditions
from cudasync.softgpu.expansion.runtime_calls.indirect_calls import Targets
from cudasync.softgpu.expansion.runtime_calls.printf_calls import Printing, output, prints
from cudasync.softgpu.expansion.textures.rewriting import OBJECT_OPCODES, Textures
from cudasync.softgpu.semantics.lowering_errors import refusal

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction, Module
    from cudasync.softgpu.expansion.rewriter import Rule

_RULES: tuple[dict[str, Rule], ...] = (
    packed_arithmetic.RULES,
    compound_scalars.RULES,
    packed_conversion.RULES,
    find_nth_set.RULES,
    cache_hints.RULES,
    vector_atomics.RULES,
    video.RULES,
)


def opcodes() -> frozenset[str]:
    """The opcodes that have rules: some of their forms are taken apart."""
    return frozenset(opcode for rules in (*_RULES, OBJECT_OPCODES) for opcode in rules)


# A function may declare this many registers for each instruction.
_SPARE = 16


def expand(module: Module) -> Module:
    """The same program without the instructions that have rules."""
    whole = _Module(module)
    functions = tuple(whole.expanded(function) for function in module.functions)
    variables = whole.targets.variables(module.variables)
    if prints(module, whole.defined):
        variables = (*variables, output())
        functions = (*functions, *whole.printing.recorders())
    functions = (*functions, *whole.textures.functions())
    if device_malloc.allocates(module, whole.defined):
        variables = (*variables, device_malloc.heap())
    return replace(module, functions=functions, variables=variables)


class _Module:
    """The state of the module for rules that look beyond one instruction."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._file = module.file
        self.targets = Targets(module)
        self.defined = {each.name for each in module.functions if not each.is_declaration}
        self.printing = Printing(module, self.defined)
        self.textures = Textures(module)

    def expanded(self, function: Function) -> Function:
        """The expanded function; the same object if there is nothing to take apart."""
        function = _without_spare_registers(function)
        parts = Parts(function)
        is_same = True
        for index, instruction in enumerate(function.body):
            parts.begin(instruction)
            try:
                is_written = self._is_taken_apart(parts, function, index, instruction)
            except PtxError:
                raise
            except Exception as error:
                raise refusal(error, instruction, self._file) from error
            if is_written:
                is_same = False
            else:
                # A rule may still have emitted something before it.
                is_same = is_same and not parts.has_begun
                parts.keep()
        return function if is_same else parts.result()

    def _is_taken_apart(
        self, parts: Parts, function: Function, index: int, instruction: Instruction
    ) -> bool:
        if instruction.opcode == "call" and (
            self.printing.rewrite(parts, function, index, instruction)
            or device_malloc.rewrite(parts, instruction, self.defined)
            or graph_conditions.rewrite(parts, instruction, self.defined)
        ):
            return True
        if self.targets.rewrite(parts, function, instruction):
            return True
        if self.textures.rewrite(parts, instruction):
            return True
        if special_registers.rewrite(parts, instruction):
            return True
        return constant_space.rewrite(parts, instruction, self._module) or any(
            rules[instruction.opcode](parts, instruction)
            for rules in _RULES
            if instruction.opcode in rules
        )


def _without_spare_registers(function: Function) -> Function:
    """The function without unused registers, if it declares far more than it has instructions."""
    if len(function.registers) <= _SPARE * (len(function.body) + _SPARE):
        return function
    used = {each.name for i in function.body for each in (*uses(i), *defs(i))}
    used |= {each.name for each in (*function.parameters, *function.results)}
    registers = {name: each for name, each in function.registers.items() if name in used}
    return replace(function, registers=registers)
