"""Cellar, jit. The cost of code in a launch's budget, in instructions of a warp.

The budget ends launches that would never end, after a time that depends little on the kernel. So
instructions that take the lanes of a warp one by one cost more than others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Function, Instruction
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow, Loop

_COSTS = {"atom": 128, "red": 64, "ld": 4, "st": 4, "div": 8, "rem": 8, "call": 16, "mma": 64}


def cost(instructions: Iterable[Instruction]) -> int:
    """The cost of these instructions, each run once."""
    return sum(_COSTS.get(each.opcode, 1) for each in instructions)


def trip_cost(flow: Flow, loop: Loop) -> int:
    """The cost of one trip through a loop, without loops inside it."""
    inner = [each for each in flow.loops if each != loop and each.header in loop]
    body = flow.function.body
    return cost(
        body[position]
        for node in flow.nodes
        if node.index in loop and not any(node.index in each for each in inner)
        for position in range(node.start, node.end)
    )


def call_cost(function: Function) -> int:
    """The cost of a call, without loops and calls inside it."""
    return 16 + cost(function.body)
