"""Cellar. Dynamic parallelism: which functions of a module launch kernels, and which they launch.

The address of a kernel in device code is the number of the function in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Register, Symbol, Vector
from cudasync.softgpu.interface.pending_launches import VARIABLE
from cudasync.softgpu.semantics.memory_visibility import with_callers

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.core.modules.modules import Function, Module, RefusedFunction

_ANY: Final = (2**31, 2**32 - 1)


class Launchable:
    """The kernels of a module that has the functions for launches."""

    def __init__(self, module: Module) -> None:
        self.symbol = [each.name for each in module.compiled.variables].index(VARIABLE)
        functions = module.source.functions
        self._compiled = module.functions
        self._refused = module.refused
        self._names = [each.name for each in functions]
        self.parameter_bytes = max(
            (each.kernel.parameter_size for each in module.functions.values()), default=0
        )
        direct = [each.name for each in functions if any(map(_may_launch, each.body))]
        self.launching = with_callers(direct, {each.name: each for each in functions})
        """The names of the functions that may launch kernels."""

    def kernel(self, number: int) -> Function | RefusedFunction:
        """The kernel with this number; `rows` says that it is one."""
        name = self._names[number]
        return self._compiled.get(name) or self._refused[name]

    def rows(self) -> list[tuple[int, int]]:
        """For each function the most threads of a block, and the most dynamic shared memory."""
        return [self._row(name) for name in self._names]

    def _row(self, name: str) -> tuple[int, int]:
        function = self._compiled.get(name)
        if function is not None:
            return function.kernel.max_threads, function.dynamic_shared_limit
        # A refused kernel may be launched here; the launch says why the kernel cannot run.
        return _ANY if name in self._refused else (0, 0)


def _may_launch(instruction: ir.Instruction) -> bool:
    """Whether an instruction uses the memory for launches, or calls through a register."""
    if instruction.opcode == "call":
        return isinstance(instruction.operands[1], Register)
    return any(
        isinstance(each, Symbol) and each.name == VARIABLE
        for top in instruction.operands
        for each in (top.elements if isinstance(top, Vector) else (top,))
    )
