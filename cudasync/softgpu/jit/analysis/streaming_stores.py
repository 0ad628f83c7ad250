"""Cellar, jit. Finds kernels that may use non-temporal stores, by their reads and ordering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import Access, StateSpace
from cudasync.softgpu.jit.kernel_abi.kernel_text import Nontemporal
from cudasync.softgpu.jit.transforms.natural_loops import any_in_loop
from cudasync.softgpu.semantics.memory_visibility import ORDERED

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.transforms.program import Program

# The threads of a kernel with any of these rely on stores of other threads. (Threads that wait for
# each other at barriers work on tiles with lines that lie apart: there it was slower.)
_TOGETHER = frozenset({"atom", "red", "bar", "barrier", "membar", "fence", "mbarrier", "call"})

# A longer kernel mostly computes. Its stores stay ordinary, because the analysis of its accesses
# would be a tenth of its compile time.
_MOST_INSTRUCTIONS = 2048


def find_nontemporal(program: Program) -> Nontemporal | None:
    """The memory that the kernel writes, if its stores may be non-temporal; else None."""
    kernel = program.kernel
    if len(kernel.body) > _MOST_INSTRUCTIONS:
        return None
    stores = {n: each for n, each in enumerate(kernel.body) if _is_far_store(each)}
    if not stores or any(_is_shared_work(each) for each in kernel.body):
        return None
    found = analyse(program.module, kernel.name)
    if found.beyond or any(each.writes for each in found.symbols.values()):
        return None
    if not {*found.parameters} <= {Access.VALUE, Access.READ, Access.WRITE}:
        return None
    pairs = zip(program.kernel_storage.parameters.values(), found.parameters, strict=True)
    outputs = tuple(place for place, access in pairs if access is Access.WRITE)
    amount = sum(each.type.size * each.vector_size for each in stores.values())
    return Nontemporal(None if any_in_loop(kernel, stores) else amount, outputs)


def _is_far_store(instruction: ir.Instruction) -> bool:
    return instruction.opcode == "st" and instruction.space is StateSpace.GLOBAL


def _is_shared_work(instruction: ir.Instruction) -> bool:
    return instruction.opcode in _TOGETHER or not ORDERED.isdisjoint(instruction.modifiers)
