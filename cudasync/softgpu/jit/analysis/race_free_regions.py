"""Cellar, jit. Finds regions between barriers in which no threads can race on shared memory.

Suppose that all warps of a block always reach the same barriers. Then code between two barriers is
concurrent only with other warps' code between the same two. Barriers order it with all other code.
So a region needs no race check if it writes shared memory not at all, or only by atomics, or if
each thread has bytes of its own there (`own_bytes`). An instruction is quiet if that holds for each
region that contains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.linear import Forms
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.race_records import is_strong
from cudasync.softgpu.jit.analysis.block_uniformity import is_together
from cudasync.softgpu.jit.analysis.own_bytes import are_own
from cudasync.softgpu.jit.transforms.suspending_functions import has_named_barriers

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
    from cudasync.softgpu.jit.analysis.suspension_points import Stop

_WRITES: Final = frozenset({"st", "atom", "red", "stmatrix", "wmma"})
_NEAR: Final = (StateSpace.SHARED, StateSpace.GENERIC)


def quiet_nodes(flow: Flow, stops: tuple[Stop, ...], *, is_line: bool = False) -> frozenset[int]:
    """The nodes of a kernel in which accesses to shared memory need no race check.

    `is_line`: blocks have one dimension.
    """
    body = flow.function.body
    barriers = {stop.position for stop in stops if stop.is_barrier}
    # Asynchronous copies continue past barriers.
    if any(each.opcode == "cp" for each in body) or has_named_barriers(flow.function):
        return frozenset()
    if not is_together(flow, barriers):
        return frozenset()
    quiet = set(range(len(flow.nodes)))
    forms = Forms(flow.function) if is_line else None
    for entry in (0, *(stop.continuation for stop in stops if stop.is_barrier)):
        stretch = _stretch(flow, entry, barriers)
        accesses = [
            each
            for node in stretch
            for each in body[flow.nodes[node].start : flow.nodes[node].end]
            if each.space in _NEAR
        ]
        if not any(map(_writes, accesses)) or all(map(_is_atomic, accesses)):
            continue
        if forms is None or not are_own(accesses, forms):
            quiet -= stretch
    return frozenset(quiet)


def _stretch(flow: Flow, entry: int, barriers: set[int]) -> set[int]:
    """The nodes from `entry` up to the next barriers."""
    seen: set[int] = set()
    waiting = [entry]
    while waiting:
        node = waiting.pop()
        if node in seen or node == flow.exit:
            continue
        seen.add(node)
        if flow.nodes[node].end - 1 not in barriers or flow.last(node).guard is not None:
            waiting += flow.nodes[node].successors
    return seen


def _writes(each: Instruction) -> bool:
    if each.opcode == "wmma":
        return "store" in each.modifiers
    return each.opcode in _WRITES


def _is_atomic(each: Instruction) -> bool:
    return is_strong(each) or each.opcode not in (*_WRITES, "ld", "ldu", "ldmatrix")
