"""Floor 3. Aims nodes at other memory, other numbers and other functions than the recorded ones.

A launch has its addresses among the bytes of its arguments, in parameters and inside of structs.
Every address in a slot is taken for a pointer, by the same rule as in inference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.graph.hazards import ordered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.node import Node


class Move(NamedTuple):
    """A move of the bytes [start, end) by so many bytes."""

    start: int
    end: int
    by: int

    @classmethod
    def between(cls, slot: Region, value: Region) -> Move:
        return cls(slot.start, slot.end, value.start - slot.start)


class Aim:
    """The replacements of slots: moves of memory, numbers for numbers, functions for functions."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        # By the identity of the recorded object.
        self._values: dict[int, tuple[Any, Any]] = {}
        # The identities that were found in a node.
        self._used: set[int] = set()

    def put(self, slot: object, value: object) -> None:
        """Let `value` replace `slot`, a number or a function."""
        self._values[id(slot)] = slot, value

    def value(self, thing: Any) -> Any:
        """The replacement of `thing`, or `thing` itself if it is no slot."""
        found = self._values.get(id(thing))
        return thing if found is None else found[1]

    def is_slot(self, thing: object) -> bool:
        if id(thing) not in self._values:
            return False
        self._used.add(id(thing))
        return True

    def is_used(self, slot: object) -> bool:
        """True if an aimed node had the slot."""
        return id(slot) in self._used

    def address(self, address: int) -> int:
        """The new address of the memory that was at `address`."""
        for start, end, by in self.moves:
            if start <= address < end:
                return address + by
        return address

    def region(self, region: Region) -> Region:
        """The moved region. It must lie in a slot, or apart from all slots."""
        by = self.address(region.start) - region.start
        return type(region)(region.start + by, region.end + by) if by else region

    def accesses(self, accesses: Accesses) -> Accesses:
        regions, read, written = accesses
        only_read, updated, overwritten = (tuple(map(self.region, part)) for part in regions)
        return (only_read, updated, overwritten), read, written


def touches(node: Node, region: tuple[int, int]) -> bool:
    """True if `node` names a byte of `region`."""
    start, end = region
    return any(each.start < end and start < each.end for part in node.hazards[0] for each in part)


def aimed(nodes: Sequence[Node], aim: Aim) -> list[Node]:
    """The nodes; those that refer to a slot are made anew."""
    return [_aimed(node, aim) for node in nodes]


def _aimed(node: Node, aim: Aim) -> Node:
    if node.control is not None:
        # The edges of the new nodes inside must be found again.
        bodies = [ordered(aimed(body, aim)) for body in node.control.bodies]
        control: Any = node.control.with_bodies(bodies)
        if control.flag is not None:
            control = replace(control, flag=control.flag.aimed(aim))
        return node.controlling(control)
    if aim.is_slot(node.fn):
        return node.calling(aim.value(node.fn))
    bound = getattr(node.fn, "args", ())
    if bound and aim.is_slot(bound[-1]):
        # A function of a stream, which `current.call` calls inside of the op.
        fn: Any = node.fn
        return node.calling(type(fn)(fn.func, *bound[:-1], aim.value(bound[-1])))
    if node.launch is None and node.transfer is None:
        return node
    is_moved = any(touches(node, (start, end)) for start, end, _ in aim.moves)
    if node.transfer is not None:
        is_sized = aim.is_slot(node.transfer.count)
        if not is_moved and not is_sized:
            return node
        return node.transferring(node.transfer.aimed(aim), aimed(node.joined, aim))
    assert node.launch is not None
    if node.expression is not None:
        # The list asks all operands, because asking marks a slot as used.
        if any([*map(aim.is_slot, node.expression.operands)]) or is_moved:
            return node.computing_at(node.expression.aimed(aim), aim.accesses(node.hazards))
        return node
    positions = _positions(node.launch.kept or (), aim)
    if not is_moved and not positions:
        return node
    launch = node.launch.aimed(aim.address if is_moved else None, positions)
    return node.launching(launch, aim.accesses(node.hazards))


def _positions(arguments: Iterable[Any], aim: Aim) -> dict[int, Any]:
    """The arguments that are slots for numbers, by position, with their replacements."""
    return {at: aim.value(each) for at, each in enumerate(arguments) if aim.is_slot(each)}
