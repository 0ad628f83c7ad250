"""Cellar, jit. Finds instructions that a thread may reach again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.cfg import ControlFlow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Function


def any_in_loop(function: Function, positions: Iterable[int]) -> bool:
    """Whether a thread may reach one of these instructions more than once."""
    flow = ControlFlow(function)
    return any(
        block in _behind(flow, block) for block in {flow.block_of[each] for each in positions}
    )


def _behind(flow: ControlFlow, block: int) -> set[int]:
    """The blocks that may run after this one, including the exit."""
    seen: set[int] = set()
    waiting = [block]
    while waiting:
        index = waiting.pop()
        new = set() if index == flow.exit else {*flow.blocks[index].successors} - seen
        seen |= new
        waiting += new
    return seen
