"""Floor 3, placement. Places of values at the edges of a block, before and after each round.

They are the same at all edges, so a value that lives through rounds moves once, before the block. A
value that steps only read is on every device that reads it. A value that steps write is on the
device of its last writer. The flag is on the device that asks for it. Any other choice would be
right, too, with more copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.graph.placement.memory_partition import everything, named
from cudasync.graph.placement.steps import needed, written_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cudasync.driver import Device
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.control import Control
    from cudasync.graph.node import Node
    from cudasync.graph.placement.memory_partition import Piece, Pieces


class Edges:
    """For one block: the devices that have each part of its memory, at all of its edges."""

    def __init__(self, pieces: Pieces, flag_on: Device | None) -> None:
        self._pieces = pieces
        # The device that asks for the flag; None for a flag on the host, or without a flag.
        self.flag_on = flag_on
        # For each part of device memory that the block touches.
        self.devices: dict[tuple[Piece, int], set[Device]] = {}

    def entries(self, regions: Iterable[Region]) -> Iterator[tuple[Region, Device]]:
        """The parts of these bytes that have a value at the edges, each with a device."""
        for region in regions:
            piece = self._pieces.of(region)
            for at in piece.parts(region):
                part = type(piece.region)(piece.cuts[at], piece.cuts[at + 1])
                for device in sorted(self.devices.get((piece, at), ()), key=_ordinal):
                    yield part, device

    def valid(self, around: Mapping[Piece, Sequence[Any]]) -> dict[Piece, list[Any]]:
        """The valid copies of each touched piece when a round begins, given those before the block
        in `around`."""
        found = {piece: list(around[piece]) for piece, _ in self.devices}
        for (piece, at), devices in self.devices.items():
            found[piece][at] = devices
        return found


def edges(control: Control, pieces: Pieces, places: Mapping[Node, Device]) -> Edges:
    """The edges of a block whose steps run at these places, else where they were recorded."""
    read: dict[tuple[Piece, int], set[Device]] = {}
    written: dict[tuple[Piece, int], set[Device]] = {}
    found = Edges(pieces, _flag_on(control, places))
    for node in everything(node for body in control.bodies for node in body):
        if node.control is not None:
            _note_flag(node.control, _flag_on(node.control, places), pieces, read)
            continue
        on = places.get(node)
        # A copy reads from any place of its source.
        for region in () if node.transfer is not None else needed(node):
            for piece, at, home in _parts(pieces, region):
                read.setdefault((piece, at), set()).add(on or home)
        for region in written_by(node):
            for piece, at, home in _parts(pieces, region):
                written[piece, at] = {on or home}
    _note_flag(control, found.flag_on, pieces, read)
    found.devices = {**read, **written}
    _note_flag(control, found.flag_on, pieces, found.devices, is_last=True)
    return found


def _note_flag(
    control: Control,
    on: Device | None,
    pieces: Pieces,
    noted: dict[tuple[Piece, int], set[Device]],
    *,
    is_last: bool = False,
) -> None:
    if control.flag is None or on is None:
        return
    for piece, at, _ in _parts(pieces, control.flag.region):
        if is_last and on not in noted.get((piece, at), ()):
            # If the flag's writer is elsewhere, it brings the flag here in each round.
            noted[piece, at] = {on}
        else:
            noted.setdefault((piece, at), set()).add(on)


def _flag_on(control: Control, places: Mapping[Node, Device]) -> Device | None:
    """The device that asks for a device flag: that of the steps, if they are on one device, so that
    the block can be work of that device."""
    if control.flag is None or control.flag.device is None:
        return None
    steps = [
        each
        for each in everything(node for body in control.bodies for node in body)
        if each.control is None
    ]
    on = {places.get(each, each.device) for each in steps}
    only = on.pop() if len(on) == 1 else None
    return only or control.flag.device


def _parts(pieces: Pieces, region: Region) -> Iterator[tuple[Piece, int, Device]]:
    """The parts of these bytes that are device memory."""
    for each in named([region]):
        piece = pieces.of(each)
        if piece.device is not None:
            yield from ((piece, at, piece.device) for at in piece.parts(each))


def _ordinal(device: Device) -> int:
    return device.ordinal
