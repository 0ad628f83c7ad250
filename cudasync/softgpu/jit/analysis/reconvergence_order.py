"""Cellar, jit. Orders the blocks of a function so that the lanes of a warp reconverge.

Blocks of the control flow graph are split behind barriers, and put into an order in which

- every edge goes forward, except back edges to the header of a loop;
- the blocks of a loop are contiguous, header first.

A warp always runs the first block with waiting lanes. Lanes that took a back edge wait at the
header until no lane of the warp is left inside the loop. So the lanes that diverge at a branch have
mostly all reached its immediate post-dominator before it runs. If all of them leave the loop
forward, the post-dominator comes after all blocks between; otherwise it is the header. `divergence`
finds the branches with lanes that reconverge later. A loop with two entries has no such order; then
`is_reducible` is False, and no code may rely on reconvergence.

Nested loops come from strongly connected components, which are split again without the edges to
their header (Tarjan 1972; Bourdoncle's weak topological order, 1993).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.cfg import ControlFlow
from cudasync.ptx.liveness import Liveness

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx.ir import Function, Instruction


@dataclass(frozen=True, slots=True)
class Node:
    """Instructions `start` to `end` (excluded); `successors` may hold the exit, `Flow.exit`."""

    index: int
    start: int
    end: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """The nodes `header` to `last`, which control may run again."""

    header: int
    last: int

    def __contains__(self, node: int) -> bool:
        return self.header <= node <= self.last


class Flow:
    """The nodes of a function in the order in which they run."""

    __slots__ = (
        "_is_kept",
        "_live",
        "_needs",
        "_starting",
        "exit",
        "function",
        "is_reducible",
        "loops",
        "nodes",
        "post_dominators",
    )

    function: Function
    nodes: tuple[Node, ...]
    # The place behind every ret: not a node.
    exit: int
    # Inner loops come after the loops around them.
    loops: tuple[Loop, ...]
    is_reducible: bool
    # For nodes that end in a branch; for other nodes, the only successor.
    post_dominators: tuple[int, ...]

    def __init__(
        self,
        function: Function,
        ends_node: Callable[[Instruction], bool],
        begins_node: Callable[[Instruction], bool] = lambda _: False,
        split_points: frozenset[int] = frozenset(),
    ) -> None:
        """`ends_node` says which instructions are barriers: the next instruction begins a node.
        A node also begins at instructions of `begins_node` and at the positions `split_points`."""
        self.function = function
        graph = _Split(function, ends_node, begins_node, split_points)
        order, spans, self.is_reducible = _arrange(graph.successors)
        position = {piece: index for index, piece in enumerate(order)}
        self.exit = len(order)
        position[graph.exit] = self.exit

        def places(pieces: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(position[piece] for piece in pieces)

        self.nodes = tuple(
            Node(index, *graph.ranges[piece], places(graph.successors[piece]))
            for index, piece in enumerate(order)
        )
        self.loops = tuple(Loop(position[header], position[header] + n - 1) for header, n in spans)
        # The exit replaces a post-dominator that cannot be reached.
        self.post_dominators = tuple(
            position.get(graph.post_dominators[piece], self.exit) for piece in order
        )
        self._live = graph.live
        self._is_kept = False
        # Cached results of `live_in`, by node.
        self._needs: dict[int, frozenset[str]] = {self.exit: frozenset()}
        self._starting = {node.start: node.index for node in self.nodes}

    def last(self, node: int) -> Instruction:
        """The last instruction of a node."""
        return self.function.body[self.nodes[node].end - 1]

    def starting_at(self, position: int) -> int:
        """The node that begins with the instruction at `position`; the exit if there is none."""
        return self._starting.get(position, self.exit)

    def live_in(self, node: int) -> frozenset[str]:
        """The names of the registers that a node, or a later one, may read before writing."""
        known = self._needs.get(node)
        if known is None:
            if not self._is_kept:
                self._live.keep_before(each.start for each in self.nodes)
                self._is_kept = True
            registers = self._live.before(self.nodes[node].start)
            known = self._needs[node] = frozenset(register.name for register in registers)
        return known

    def reach(self, start: int, stop: int) -> frozenset[int]:
        """The nodes on paths from `start` that do not pass `stop` or the exit."""
        barred = {stop, self.exit}
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if node not in seen and node not in barred:
                seen.add(node)
                waiting += self.nodes[node].successors
        return frozenset(seen)


class _Split:
    """The control flow graph with blocks cut behind barriers; `pieces` are in text order."""

    def __init__(
        self,
        function: Function,
        ends_node: Callable[[Instruction], bool],
        begins_node: Callable[[Instruction], bool],
        split_points: frozenset[int],
    ) -> None:
        flow = ControlFlow(function)
        self.live = Liveness(flow)
        self.ranges: list[tuple[int, int]] = []
        first_of: dict[int, int] = {}
        block_of: list[int] = []
        for block in flow.blocks:
            first_of[block.index] = len(self.ranges)
            start = block.start
            for index in range(block.start, block.end - 1):
                if (
                    ends_node(function.body[index])
                    or begins_node(function.body[index + 1])
                    or index + 1 in split_points
                ):
                    self.ranges.append((start, index + 1))
                    start = index + 1
            self.ranges.append((start, block.end))
            block_of += [block.index] * (len(self.ranges) - len(block_of))
        self.exit = len(self.ranges)
        first_of[flow.exit] = self.exit
        self.successors: list[tuple[int, ...]] = []
        self.post_dominators: list[int] = []
        for piece, (_, end) in enumerate(self.ranges):
            block = flow.blocks[block_of[piece]]
            if end == block.end:
                self.successors.append(tuple(first_of[each] for each in block.successors))
                self.post_dominators.append(first_of[flow.post_dominators[block.index]])
            else:
                self.successors.append((piece + 1,))
                self.post_dominators.append(piece + 1)


def _arrange(successors: list[tuple[int, ...]]) -> tuple[list[int], list[tuple[int, int]], bool]:
    """The reachable nodes in order, the (header, length) of each loop, and reducibility."""
    order: list[int] = []
    spans: list[tuple[int, int]] = []
    is_reducible = True
    # Sets of nodes that are not ordered yet, the next set last, and the entries of each.
    waiting = [(set(range(len(successors))), {0})] if successors else []
    while waiting:
        inside, entries = waiting.pop()
        components = _components(successors, inside, sorted(entries))
        if len(components) > 1:
            for component in reversed(components):
                entered = component
                if len(component) > 1:
                    outside = inside - component
                    entered = component & entries | _entered(successors, outside, component)
                waiting.append((component, entered))
            continue
        (component,) = components
        header = min(component & entries)
        order.append(header)
        if len(component) == 1 and header not in successors[header]:
            continue
        spans.append((header, len(component)))
        others = (component & entries) - {header}
        is_reducible = is_reducible and not others
        rest = component - {header}
        if rest:
            waiting.append((rest, others | _entered(successors, {header}, rest)))
    return order, spans, is_reducible


def _entered(successors: list[tuple[int, ...]], sources: set[int], targets: set[int]) -> set[int]:
    """The nodes of `targets` to which an edge from `sources` leads."""
    return {node for source in sources for node in successors[source] if node in targets}


def _components(
    successors: list[tuple[int, ...]], inside: set[int], entries: list[int]
) -> list[set[int]]:
    """The strongly connected components of `inside` that `entries` reach, topologically sorted.

    Tarjan's algorithm without recursion, for kernels with thousands of blocks.
    """
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    held: list[int] = []
    is_held: set[int] = set()
    found: list[set[int]] = []
    for entry in reversed(entries):
        if entry in number:
            continue
        path: list[tuple[int, list[int]]] = []
        entered: int | None = entry
        while path or entered is not None:
            if entered is not None:
                number[entered] = lowest[entered] = len(number)
                held.append(entered)
                is_held.add(entered)
                # Sorted so that the earlier node in the text is visited last and comes out first.
                path.append((entered, sorted(e for e in successors[entered] if e in inside)))
                entered = None
            node, remaining = path[-1]
            if remaining:
                following = remaining.pop()
                if following not in number:
                    entered = following
                elif following in is_held:
                    lowest[node] = min(lowest[node], number[following])
                continue
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
            if lowest[node] == number[node]:
                component: set[int] = set()
                while node not in component:
                    component.add(held.pop())
                is_held -= component
                found.append(component)
    return found[::-1]
