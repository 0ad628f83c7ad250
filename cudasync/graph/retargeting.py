"""Floor 3. Aims nodes at other memory, other numbers and other functions than the recorded ones.

A launch has its addresses among the bytes of its arguments, in parameters and inside of structs.
Every address in a slot, or one past its end, is taken for a pointer, by the same rule as in
inference. An address that came as a value may be the beginning of some memory and the end of its
neighbour: `is_unclear` tells, and such a launch is not aimed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.driver.memory.allocations import ALLOCATIONS
from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.graph.hazards import ordered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cudasync.driver import Launch
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

    def word(self, word: int, *, is_value: bool) -> int:
        """The new value of a word that may be an address. Given as a value, the word may also be
        one past the end of moved memory."""
        behind = 0
        for start, end, by in self.moves:
            if start <= word < end:
                return word + by
            if is_value and word == end:
                behind = by
        return word + behind

    def launch(self, node: Node, values: Mapping[int, Any], *, is_moved: bool = True) -> Launch:
        """The launch of `node` on the moved memory, with these arguments replaced."""
        assert node.launch is not None
        value_words = node.value_words

        def address(at: int, word: int) -> int:
            return self.word(word, is_value=at in value_words)

        return node.launch.aimed(address if is_moved else None, values)

    def region(self, region: Region) -> Region:
        """The moved region; of an allocation with a margin around a slot, the slot's bytes."""
        if region.__class__ is Everywhere:
            return region
        for start, end, by in self.moves:
            if start < region.end and region.start < end:
                low, high = max(start, region.start), min(end, region.end)
                return type(region)(low + by, high + by)
        return region

    def accesses(self, accesses: Accesses) -> Accesses:
        regions, read, written = accesses
        only_read, updated, overwritten = (tuple(map(self.region, part)) for part in regions)
        return (only_read, updated, overwritten), read, written


def touches(node: Node, region: tuple[int, int]) -> bool:
    """True if `node` names a byte of `region`."""
    start, end = region
    return any(each.start < end and start < each.end for part in node.hazards[0] for each in part)


def refers_to(node: Node, region: tuple[int, int]) -> bool:
    """True if `node` names a byte of `region`, or has its end as a value: it may do no more than
    compare addresses with the end."""
    return touches(node, region) or any(word == region[1] for word in _values_of(node))


def is_unclear(node: Node, regions: Sequence[tuple[int, int]]) -> bool:
    """True if a launch, or one inside of a block, has a word that is a border of one of `regions`,
    and may belong to the memory on either side.

    Only an address that came as a value is unclear: an array begins at its address.
    """
    if node.control is not None:
        return any(is_unclear(each, regions) for body in node.control.bodies for each in body)
    for word in _values_of(node):
        is_start, is_end = (any(word == each[at] for each in regions) for at in (0, 1))
        if (is_start and is_end) or ((is_start or is_end) and len(ALLOCATIONS.at(word)) > 1):
            return True
    return False


def _values_of(node: Node) -> Iterator[int]:
    """The words of a launch that may be addresses, and came as values."""
    launch = node.launch
    if launch is not None and node.expression is None and node.value_words:
        yield from (word for at, word in launch.words() if at in node.value_words)


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
    is_moved = any(refers_to(node, (start, end)) for start, end, _ in aim.moves)
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
    positions = _positions(node, aim)
    if not is_moved and not positions:
        return node
    launch = aim.launch(node, positions, is_moved=is_moved)
    return node.launching(launch, aim.accesses(node.hazards))


def _positions(node: Node, aim: Aim) -> dict[int, Any]:
    """The arguments that are slots for numbers, by position, with their replacements. Raises
    ValueError for another number in the place of an address: the launch would reach memory that its
    accesses do not name."""
    launch: Any = node.launch
    found = {at: aim.value(each) for at, each in enumerate(launch.kept or ()) if aim.is_slot(each)}
    for at, value in found.items():
        parameter = launch.kernel.parameters[at]
        is_address = any(
            not word.is_only_kept or ALLOCATIONS.at(int(value)) for word in parameter.fields
        )
        if is_address and value != launch.kept[at]:
            raise ValueError(
                f"argument {parameter.name} of kernel {launch.kernel.name} is an address, which "
                "cannot be updated as a number: make the array an argument, g.argument(name, x)"
            )
    return found
