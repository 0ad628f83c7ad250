"""Floor 0. Control flow of a function: basic blocks, edges, post-dominators.

Blocks are in the order of the text, and every instruction is in exactly one block. A block ends at
each instruction that can send a thread elsewhere: bra, brx, ret, exit, trap, guarded or not. A
guarded ret ends some threads while others go on. So its block has two successors: the next block
and the exit. The exit is a node of its own, `flow.exit`, which is len(blocks).

A back edge goes to the same or an earlier block in the text. Every cycle has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Label

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction

_LEAVES = frozenset({"ret", "exit", "trap"})
_BRANCHES = frozenset({"bra", "brx"})


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions `start` to `end` (excluded), entered only at `start`.

    `successors` lists each successor once, the fall-through first; it may hold the exit node.
    """

    index: int
    start: int
    end: int
    successors: tuple[int, ...]
    predecessors: tuple[int, ...]


class ControlFlow:
    """The blocks of `function` and the edges between them."""

    __slots__ = ("back_edges", "block_of", "blocks", "exit", "function", "post_dominators")

    function: Function
    blocks: tuple[Block, ...]
    # The block of each instruction.
    block_of: tuple[int, ...]
    # The node after every ret; it is not a block.
    exit: int
    # The immediate post-dominator of each block, which may be the exit.
    post_dominators: tuple[int, ...]
    # (from, to) with to <= from.
    back_edges: frozenset[tuple[int, int]]

    def __init__(self, function: Function) -> None:
        self.function = function
        starts = _starts(function)
        self.exit = len(starts)
        ends = [*starts[1:], len(function.body)] if starts else []
        block_at = {start: index for index, start in enumerate(starts)}
        # A label at the very end is the exit.
        block_at[len(function.body)] = self.exit
        successors = [
            _successors(function, block_at, end, index + 1) for index, end in enumerate(ends)
        ]
        predecessors: list[list[int]] = [[] for _ in range(self.exit + 1)]
        for index, targets in enumerate(successors):
            for target in targets:
                predecessors[target].append(index)
        self.blocks = tuple(
            Block(index, starts[index], ends[index], targets, tuple(predecessors[index]))
            for index, targets in enumerate(successors)
        )
        self.block_of = tuple(
            block.index for block in self.blocks for _ in range(block.start, block.end)
        )
        self.back_edges = frozenset(
            (block.index, target)
            for block in self.blocks
            for target in block.successors
            if target <= block.index
        )
        self.post_dominators = _post_dominators(successors, self.exit)


def _starts(function: Function) -> list[int]:
    """Where blocks begin: at the first instruction, at labels, after branches and returns."""
    body = function.body
    starts = {0, *function.labels.values()}
    for index, instruction in enumerate(body):
        if instruction.opcode in _LEAVES or instruction.opcode in _BRANCHES:
            starts.add(index + 1)
    return sorted(start for start in starts if start < len(body))


def _successors(
    function: Function, block_at: dict[int, int], end: int, following: int
) -> tuple[int, ...]:
    last = function.body[end - 1]
    leaves = last.opcode in _LEAVES
    targets: dict[int, None] = {}
    if last.guard is not None or not (leaves or last.opcode in _BRANCHES):
        targets[following] = None
    if leaves:
        targets[len(block_at) - 1] = None
    for label in _targets(function, last):
        targets[block_at[function.labels[label]]] = None
    return tuple(targets)


def _targets(function: Function, instruction: Instruction) -> tuple[str, ...]:
    """The labels that a branch may go to."""
    if instruction.opcode not in _BRANCHES:
        return ()
    operand = instruction.operands[-1]
    assert isinstance(operand, Label), instruction.text
    if instruction.opcode == "brx":
        return function.tables[operand.name]
    return (operand.name,)


def _post_dominators(successors: list[tuple[int, ...]], exit_: int) -> tuple[int, ...]:
    """Immediate post-dominators.

    The algorithm of Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001), on
    the reversed graph. A loop without an exit has no path to the exit node. Its last block in the
    text gets an edge there, so that every block has a post-dominator.
    """
    order, edges = _reverse_order(successors, exit_)
    position = {node: place for place, node in enumerate(order)}
    immediate = {exit_: exit_}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            found = -1
            for successor in edges[node]:
                if successor in immediate:
                    found = (
                        successor
                        if found < 0
                        else _intersection(immediate, position, found, successor)
                    )
            if immediate.get(node) != found:
                immediate[node] = found
                changed = True
    return tuple(immediate[node] for node in range(exit_))


def _intersection(
    immediate: dict[int, int], position: dict[int, int], first: int, second: int
) -> int:
    while first != second:
        while position[first] > position[second]:
            first = immediate[first]
        while position[second] > position[first]:
            second = immediate[second]
    return first


def _reverse_order(
    successors: list[tuple[int, ...]], exit_: int
) -> tuple[list[int], list[tuple[int, ...]]]:
    """Nodes in reverse postorder from the exit along reversed edges, and the completed edges."""
    edges = list(successors)
    predecessors: list[list[int]] = [[] for _ in range(exit_ + 1)]
    for node, targets in enumerate(edges):
        for target in targets:
            predecessors[target].append(node)
    seen: set[int] = set()
    _postorder(predecessors, exit_, seen)
    for node in range(exit_ - 1, -1, -1):
        if node not in seen:
            edges[node] = (*edges[node], exit_)
            predecessors[exit_].append(node)
            _postorder(predecessors, node, seen)
    return _postorder(predecessors, exit_, set())[::-1], edges


def _postorder(predecessors: list[list[int]], start: int, seen: set[int]) -> list[int]:
    """The nodes that are not `seen` yet and from which `start` is reached, in postorder."""
    seen.add(start)
    order: list[int] = []
    stack = [(start, iter(predecessors[start]))]
    while stack:
        node, remaining = stack[-1]
        following = next((other for other in remaining if other not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(predecessors[following])))
    return order
