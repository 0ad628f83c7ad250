"""Cellar, jit. Finds the functions and instructions that may suspend a warp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from cudasync.ptx.ir import Integer
from cudasync.softgpu.jit.transforms.natural_loops import any_in_loop
from cudasync.softgpu.semantics.memory_visibility import (
    callee,
    gets_on,
    is_block_barrier,
    is_collective,
    may_be_waited_with,
    may_wait,
    sees,
    with_callers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx.ir import Function, Instruction

# By the name of a function that was not inlined although a loop around a call of it may wait:
# whether such a loop does more than wait.
Waiting: TypeAlias = Mapping[str, bool]


NOBODY_WAITS: Waiting = {}


def is_barrier(instruction: Instruction) -> bool:
    """Whether this waits for the threads of the block; a barrier of one warp never waits."""
    return is_block_barrier(instruction) and "arrive" not in instruction.modifiers


def is_meeting(
    function: Function, waiting: Waiting = NOBODY_WAITS
) -> Callable[[Instruction], bool]:
    """A test for instructions of this function that may wait for lanes which a loop holds.

    A loop around a call of one of `waiting` may hold lanes, too.
    """
    if any(
        sees(each) or each.opcode == "nanosleep" or callee(each) in waiting
        for each in function.body
    ):
        return is_collective
    return lambda _: False


def may_stop(function: Function) -> bool:
    """Whether it has a barrier, or an instruction that a loop around a call of it might await."""
    return may_be_waited_with(function) or any(map(is_block_barrier, function.body))


def waiting_functions(functions: Mapping[str, Function]) -> Waiting:
    """The functions with an instruction that a loop around a call might wait for.

    For each, whether a loop that calls it does more than wait.
    """
    own = (name for name, each in functions.items() if may_be_waited_with(each))
    moving = {
        name
        for name, each in functions.items()
        if any(gets_on(i) and callee(i) not in functions for i in each.body)
    }
    more = with_callers(moving, functions)
    return {name: name in more for name in sorted(with_callers(own, functions))}


def stops_inside(function: Function, waiting: Waiting) -> bool:
    """Whether a warp may be suspended within it, and not only in a loop around a call of it."""
    looks = [n for n, i in enumerate(function.body) if may_wait(i) or callee(i) in waiting]
    return any(map(is_block_barrier, function.body)) or any_in_loop(function, looks)


def has_named_barriers(kernel: Function) -> bool:
    """Whether the kernel has barriers other than a single one at which all threads meet."""
    barriers = [each for each in kernel.body if is_block_barrier(each)]
    return any(
        "sync" not in each.modifiers
        or len(each.operands) != 1
        or not isinstance(each.operands[0], Integer)
        or each.operands != barriers[0].operands
        for each in barriers
    )
