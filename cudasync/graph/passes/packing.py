"""Floor 3, passes. How lives are laid into memory that there is, for `memory`.

Memory is that of some of the temporaries, *blocks*; each temporary lies in one of them, beside
those that it meets. Which blocks: the largest of all first, each as far as needed; then, of few
temporaries, as few as hold all of them, and each as small as it can be. What takes less is taken.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.driver import Device
    from cudasync.engine.hazards.interval_map import Region

# What memory of a device begins at a multiple of.
_ALIGNMENT = 256
# Choices of blocks are tried for so many temporaries, where they take so few blocks.
_MOST_TRIED = 300
_MOST_BLOCKS = 8


class Temporary(NamedTuple):
    """Memory of a result that nobody can ask for, and its life among the nodes."""

    region: Region
    device: Device | None
    # The place of the node that makes it, and those of all that touch it, as bits.
    made: int
    users: int
    # Of what comes before the node that makes it.
    ancestors: int

    @property
    def size(self) -> int:
        """Its bytes, which are all that its memory has."""
        return self.region.end - self.region.start

    def is_over_before(self, other: Temporary) -> bool:
        """True if all that touches it comes before what makes the other."""
        return not self.users & ~other.ancestors

    def meets(self, other: Temporary) -> bool:
        """True if both may be in use at once."""
        return not self.is_over_before(other) and not other.is_over_before(self)


@dataclass
class Block:
    """Memory that one temporary has, to its last byte; what is laid into it, at which offsets."""

    start: int
    size: int
    # By their offsets.
    inside: list[tuple[Temporary, int]] = field(default_factory=list)

    def place_for(self, made: Temporary) -> int | None:
        """The lowest offset at which it lies beside all that it meets; None where there is none."""
        at = 0
        for other, offset in self.inside:
            if at + made.size <= offset:
                break
            if offset + other.size > at and made.meets(other):
                at = -(-(offset + other.size) // _ALIGNMENT) * _ALIGNMENT
        return at if at + made.size <= self.size else None


def packed(found: Iterable[Temporary]) -> list[Block]:
    """The blocks, with all temporaries in them."""
    of_device: dict[Device | None, list[Temporary]] = {}
    for each in found:
        of_device.setdefault(each.device, []).append(each)
    blocks: list[Block] = []
    for some in of_device.values():
        largest = sorted(some, key=lambda each: (-each.size, each.made))
        ways = [_one_by_one(largest)]
        if len(some) <= _MOST_TRIED and len(ways[0]) <= _MOST_BLOCKS:
            ways.append(_as_few(largest))
        blocks += min(ways, key=lambda way: sum(block.size for block in way))
    return blocks


def _one_by_one(largest: Sequence[Temporary]) -> list[Block]:
    """Those that fit in no block so far have one of their own."""
    blocks: list[Block] = []
    for each in largest:
        if not _lay(each, blocks):
            blocks.append(Block(each.region.start, each.size, [(each, 0)]))
    return blocks


def _as_few(largest: Sequence[Temporary]) -> list[Block]:
    """As few of the largest as hold all, then each exchanged for the smallest that does."""
    low, high = 1, len(largest)
    while low < high:
        middle = (low + high) // 2
        if _laid(largest, largest[:middle]) is None:
            low = middle + 1
        else:
            high = middle
    owners = list(largest[:low])
    for at in range(len(owners)):
        others = [each for each in largest if each not in owners and each.size < owners[at].size]
        first, last = 0, len(others)
        while first < last:
            middle = (first + last) // 2
            if _laid(largest, [*owners[:at], others[middle], *owners[at + 1 :]]) is None:
                last = middle
            else:
                owners[at] = others[middle]
                first = middle + 1
    blocks = _laid(largest, owners)
    assert blocks is not None
    return blocks


def _laid(found: Sequence[Temporary], owners: Sequence[Temporary]) -> list[Block] | None:
    """All of them in the memory of some, in the order in which they are made; None if it is too
    little."""
    blocks = [Block(each.region.start, each.size) for each in sorted(owners, key=_size)]
    if all(_lay(each, blocks) for each in sorted(found, key=_made)):
        return blocks
    return None


def _lay(made: Temporary, blocks: Iterable[Block]) -> bool:
    for block in blocks:
        offset = block.place_for(made)
        if offset is not None:
            insort(block.inside, (made, offset), key=_offset)
            return True
    return False


def _size(each: Temporary) -> int:
    return each.size


def _made(each: Temporary) -> int:
    return each.made


def _offset(each: tuple[Temporary, int]) -> int:
    return each[1]
