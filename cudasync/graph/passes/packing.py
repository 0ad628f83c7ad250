"""Floor 3, passes. Packs lives into existing memory, for the `memory` pass.

The memory of some temporaries serves as *blocks*. Each temporary lies in a block, beside those that
it overlaps in time. The first choice takes the largest temporaries, as needed. For few temporaries
a second choice is tried: as few blocks as hold all, each as small as possible. The choice that
takes less memory wins.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.driver import Device
    from cudasync.engine.hazards.interval_map import Region

# Device memory begins at a multiple of this.
_ALIGNMENT = 256
# The second choice is tried up to this many temporaries, and this many blocks in the first.
_MOST_TRIED = 300
_MOST_BLOCKS = 8


class Temporary(NamedTuple):
    """Memory of a result that nobody can ask for, and its life among the nodes."""

    region: Region
    device: Device | None
    # The index of its maker, and the indices of all nodes that touch it, as bits.
    made: int
    users: int
    # The ancestors of its maker, as bits.
    ancestors: int

    @property
    def size(self) -> int:
        """Its bytes, which are all bytes of its memory."""
        return self.region.end - self.region.start

    def is_over_before(self, other: Temporary) -> bool:
        """True if all nodes that touch it come before the maker of the other."""
        return not self.users & ~other.ancestors

    def meets(self, other: Temporary) -> bool:
        """True if both may be in use at once."""
        return not self.is_over_before(other) and not other.is_over_before(self)


@dataclass
class Block:
    """Memory of one temporary, in full, and the temporaries packed into it, at their offsets."""

    start: int
    size: int
    # By their offsets.
    inside: list[tuple[Temporary, int]] = field(default_factory=list)

    def place_for(self, made: Temporary) -> int | None:
        """The lowest offset at which it fits beside all that it overlaps in time; None if none
        fits."""
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
    """A temporary that fits in no existing block becomes a block."""
    blocks: list[Block] = []
    for each in largest:
        if not _lay(each, blocks):
            blocks.append(Block(each.region.start, each.size, [(each, 0)]))
    return blocks


def _as_few(largest: Sequence[Temporary]) -> list[Block]:
    """The fewest of the largest that hold all, then each exchanged for the smallest that does."""
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
    """All temporaries in the memory of `owners`, in the order of their making; None if that is too
    small."""
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
