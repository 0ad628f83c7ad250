"""Cellar. Memory visibility: instructions that see other threads' writes, so loops may wait.

A spinning thread sees a change only through three kinds of instruction: a load that must read
memory each time (volatile, relaxed, acquiring, uncached), an atomic, or a plain load with a fence
in the loop. Both lowerings take the list from here, so that both give up their turn in the same
loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Symbol
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.printf_buffer import RECORDERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudasync.ptx.ir import Function, Instruction

# .cg and .cv load past a multiprocessor's cache; older programs spin with them. These loads are
# weak, and today's compilers need not repeat them: the race check reports such a loop.
_LOOKING_AGAIN = frozenset({"volatile", "relaxed", "acquire", "mmio", "cg", "cv"})
# Accesses with these modifiers are ordered for other threads.
ORDERED = frozenset({"volatile", "relaxed", "acquire", "release", "mmio"})
# Opcodes that write memory, beside st.
ATOMICS = ("atom", "red")
_FENCES = frozenset({"membar", "fence"})
_LOADS = frozenset({"ld", "ldu"})
_WRITING = frozenset({"st", "red", "cp", "stmatrix"})
_ASKING = frozenset({"test_wait", "try_wait"})
# Atomics with these operations may fail without a change, as in spin locks; others make progress.
_LOCKING = frozenset({"cas", "exch"})


def is_fence(instruction: Instruction) -> bool:
    """Whether memory must be read again behind this instruction."""
    if instruction.opcode in ("bar", "barrier"):
        return "warp" in instruction.modifiers
    return instruction.opcode in _FENCES


def sees(instruction: Instruction, *, behind_fence: bool = False) -> bool:
    """Whether this instruction sees concurrent writes of other threads.

    With `behind_fence`, the loop around it has a fence, so a plain load sees them, too.
    """
    if instruction.opcode in _LOADS:
        is_plain = not {"param", "const", "nc"} & set(instruction.modifiers)
        looks = not _LOOKING_AGAIN.isdisjoint(instruction.modifiers)
        return is_plain and (looks or behind_fence)
    if instruction.opcode == "mbarrier":
        return not _ASKING.isdisjoint(instruction.modifiers)
    return instruction.opcode == "atom"


def gets_on(instruction: Instruction) -> bool:
    """Whether a loop with this instruction does more than wait, because it changes memory."""
    if instruction.opcode == "atom":
        amount = instruction.operands[-1]
        is_polling = isinstance(amount, Integer) and amount.value == 0
        return not is_polling and _LOCKING.isdisjoint(instruction.modifiers)
    if instruction.opcode == "mbarrier":
        return _ASKING.isdisjoint(instruction.modifiers)
    is_own = instruction.space in (StateSpace.LOCAL, StateSpace.PARAM)
    return (instruction.opcode in _WRITING and not is_own) or instruction.opcode == "call"


def is_collective(instruction: Instruction) -> bool:
    """Whether the lanes of a warp must be together for this instruction."""
    if instruction.opcode in ("bar", "barrier"):
        return "warp" in instruction.modifiers
    return "sync" in instruction.modifiers


def callee(instruction: Instruction) -> str | None:
    """The name of the function that this instruction calls; None if it calls none by name."""
    if instruction.opcode != "call" or not isinstance(instruction.operands[1], Symbol):
        return None
    return instruction.operands[1].name


def callees(function: Function) -> list[str]:
    """The names of the functions that `function` calls."""
    return [name for each in function.body if (name := callee(each)) is not None]


def may_wait(instruction: Instruction) -> bool:
    """Whether a loop around this instruction may be a wait."""
    return sees(instruction) or is_fence(instruction) or instruction.opcode == "nanosleep"


def may_be_waited_with(function: Function) -> bool:
    """Whether a loop around a call of this function may be a wait."""
    # The functions that write records return nothing to the caller.
    return function.name not in RECORDERS.values() and any(map(may_wait, function.body))


def is_block_barrier(instruction: Instruction) -> bool:
    """Whether this is a barrier of the block, with or without a wait."""
    return instruction.opcode in ("bar", "barrier") and "warp" not in instruction.modifiers


def with_callers(names: Iterable[str], functions: Mapping[str, Function]) -> frozenset[str]:
    """These functions, and their direct and indirect callers."""
    found = set(names)
    size = -1
    while size != len(found):
        size = len(found)
        found |= {n for n, each in functions.items() if not found.isdisjoint(callees(each))}
    return frozenset(found)
