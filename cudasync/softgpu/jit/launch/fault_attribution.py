"""Cellar, jit. Finds the access that an instruction makes, for the report of its fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.semantics.matrix_forms import part_of
from cudasync.softgpu.semantics.memory_visibility import ATOMICS

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction

_READS = frozenset({"test_wait", "try_wait"})


@dataclass(frozen=True, slots=True)
class Touched:
    """An access of one thread."""

    size_bytes: int
    is_write: bool
    space: StateSpace


def blamed(instruction: Instruction, *, is_in_window: bool) -> Touched | None:
    """The access of `instruction` that failed; None if it makes no access.

    If it makes two, one is to shared memory: `is_in_window` says whether that one failed.
    """
    modifiers, space = instruction.modifiers, instruction.space
    match instruction.opcode:
        case "cp" if "mbarrier" in modifiers:
            return Touched(8, True, space)
        case "cp" if not is_in_window:
            return Touched(_copied(instruction), False, StateSpace.GLOBAL)
        case "cp":
            return Touched(_copied(instruction), True, StateSpace.SHARED)
        case "ldmatrix" | "stmatrix":
            return Touched(16, instruction.opcode == "stmatrix", space)
        case "mbarrier":
            return Touched(8, _READS.isdisjoint(modifiers), space)
        case "wmma":
            part = part_of(instruction)
            assert part is not None
            return Touched(part.element_bytes, "store" in modifiers, space)
    # A call that exceeds the stack is no access: it has neither a size nor a type.
    if not instruction.types:
        return None
    size = instruction.type.size * instruction.vector_size
    return Touched(size, instruction.opcode in ("st", *ATOMICS), space)


def _copied(instruction: Instruction) -> int:
    size = instruction.operands[2]
    return size.value if isinstance(size, Integer) else 0
