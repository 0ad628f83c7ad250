"""Cellar. The .local memory of a thread: the kernel's variables, then a frame for each call.

A frame begins where the caller's ends, so a recursive function has new variables in each call. An
address counts from the start of the thread's memory, in every function. Parameters whose address is
taken lie in the frame, too: they are copied to the stack then (PTX ISA, "mov").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Symbol
from cudasync.ptx.layout import layout
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.semantics.memory_visibility import callees, with_callers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx.ir import Function, Module, Variable

# The memory for recursive functions, as in the jit.
_RECURSION_BYTES = 4096
# Stricter alignments are ignored: every thread would pay for them.
_MOST_ALIGNMENT = 4096


class LocalFrames:
    """Offsets of .local variables: in the kernel, and from the start of a function's frame.

    Module-scope variables belong to the kernel. `bytes_of` has the size of each frame by function;
    `thread_bytes` is the size of all of them for one thread.
    """

    bytes_of: Mapping[str, int]
    thread_bytes: int

    def __init__(self, module: Module, kernel: Function, functions: Mapping[str, Function]) -> None:
        everyones = [each for each in module.variables if each.space is StateSpace.LOCAL]
        variables = {kernel.name: [*everyones, *_local(kernel)]}
        devices = {name: each for name, each in functions.items() if not each.is_kernel}
        variables |= {name: [*_local(each), *addressed(each)] for name, each in devices.items()}
        alignments = [each.align for own in variables.values() for each in own]
        multiple = min(_MOST_ALIGNMENT, max(16, *alignments, 16))
        self._offsets: dict[str, dict[str, int]] = {}
        self.bytes_of = frames = {}
        for name, own in variables.items():
            self._offsets[name], size = layout(own)
            frames[name] = -(-size // multiple) * multiple
        self._everyones = {each.name for each in everyones}
        self._kernel = kernel.name
        self.thread_bytes = sum(frames.values())
        recursive = [name for name, each in devices.items() if _calls_itself(each, devices)]
        if any(frames[name] for name in recursive):
            self.thread_bytes += _RECURSION_BYTES

    def offset(self, function: Function, name: str) -> tuple[int, bool] | None:
        """The offset of `name` in `function`, and whether it counts from the function's frame.

        None if `name` does not lie in local memory.
        """
        own = self._offsets[function.name].get(name)
        if own is not None:
            return own, not function.is_kernel
        if name in self._everyones:
            return self._offsets[self._kernel][name], False
        return None


def addressed(function: Function) -> list[Variable]:
    """The parameters and results of a device function whose address it takes."""
    named = {
        operand.name
        for each in function.body
        if each.opcode != "call"
        for operand in each.operands
        if isinstance(operand, Symbol)
    }
    own = [] if function.is_kernel else [*function.parameters, *function.results]
    return [each for each in own if each.name in named and each.name not in function.registers]


def _local(function: Function) -> list[Variable]:
    return [each for each in function.variables if each.space is StateSpace.LOCAL]


def _calls_itself(function: Function, functions: Mapping[str, Function]) -> bool:
    return not with_callers([function.name], functions).isdisjoint(callees(function))
