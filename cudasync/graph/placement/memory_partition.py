"""Floor 3, placement. Cuts the memory of a program into pieces, which move independently.

A piece is a maximal range of overlapping accesses: most often all that nodes touch of one array. It
is cut at the ends of the accesses, so that all bytes of a part are in one state.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudasync.engine.hazards.interval_map import Everywhere, Region

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cudasync.driver import Device
    from cudasync.graph.node import Node


@dataclass(eq=False)
class Piece:
    """A range of memory on its recorded device; None for host memory and an unknown device."""

    region: Region
    device: Device | None = None
    # `is_anywhere`: recorded on `cs.ANY`. `is_temporary`: nobody can ask for its value after a
    # launch.
    is_anywhere: bool = False
    is_temporary: bool = False
    # The starts of its parts, and its end.
    cuts: list[int] = field(default_factory=list)

    def parts(self, region: tuple[int, int]) -> range:
        """The parts in these bytes, which begin and end where parts do."""
        start = bisect_left(self.cuts, max(region[0], self.region.start))
        return range(start, bisect_left(self.cuts, min(region[1], self.region.end)))


class Pieces:
    """All memory that the nodes of a program touch, including nodes inside of blocks."""

    def __init__(self, program: Sequence[Node]) -> None:
        nodes = list(everything(program))
        tokens = {each for node in nodes for each in node.anywhere}
        regions = {r for node in nodes for r in touched(node)}
        self._pieces = _merged([*regions, *(each.region for each in tokens)])
        for start, end in regions:
            piece = self.of((start, end))
            piece.cuts += (start, end)
        for piece in self._pieces:
            piece.cuts = sorted({*piece.cuts, *piece.region})
        for each in tokens:
            piece = self.of(each.region)
            piece.device, piece.is_anywhere = each.device, True
            piece.is_temporary = each.is_temporary
        self._tell_devices(nodes)
        for node in nodes:
            made = node.expression
            if made is not None and made.is_temporary and node.device is not None:
                piece = self.of(made.result.region)
                if piece.region == made.result.region:
                    piece.is_temporary = True

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces)

    def of(self, region: tuple[int, int]) -> Piece:
        """The piece of these bytes, which some node touches."""
        return self._pieces[bisect_right(self._pieces, region[0], key=_start) - 1]

    def _tell_devices(self, nodes: Iterable[Node]) -> None:
        """Find the device of each piece that is not on `cs.ANY`: the device of its users."""
        unsure: set[Piece] = set()
        for node in nodes:
            for region, device in _places(node):
                piece = self.of(region)
                if piece.is_anywhere or piece in unsure:
                    continue
                if piece.device is None or piece.device is device:
                    piece.device = device
                else:
                    # Used by peer access: its device is unknown.
                    unsure.add(piece)
                    piece.device = None


def everything(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes of a program; those inside of a block follow the block."""
    for node in nodes:
        yield node
        if node.control is not None:
            for body in node.control.bodies:
                yield from everything(body)


def touched(node: Node) -> Iterator[Region]:
    """All bytes that a node names."""
    for part in node.hazards[0]:
        yield from named(part)


def named(regions: Iterable[Region]) -> list[Region]:
    """The regions that are some memory, and not all of it."""
    return [each for each in regions if each[0] < each[1] and each.__class__ is not Everywhere]


def _places(node: Node) -> Iterator[tuple[Region, Device | None]]:
    """Bytes that it touches, each with its device, if any."""
    transfer = node.transfer
    if transfer is not None:
        places = (transfer.target, transfer.source)
        yield from (each for each in places if each is not None and named([each[0]]))
    elif node.launch is not None:
        yield from ((each, node.device) for each in touched(node))
    elif node.control is not None and node.control.flag is not None:
        yield node.control.flag.region, node.control.flag.device


def _merged(regions: Iterable[tuple[int, int]]) -> list[Piece]:
    found: list[Region] = []
    for start, end in sorted(regions):
        if found and start < found[-1].end:
            found[-1] = Region(found[-1].start, max(end, found[-1].end))
        else:
            found.append(Region(start, end))
    return [Piece(each) for each in found]


def _start(piece: Piece) -> int:
    return piece.region.start
