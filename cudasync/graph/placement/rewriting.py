"""Floor 3, placement. Builds the program with its steps in their places, and copies in between.

Invariant behind each emitted step: for every part of a piece, the devices are known that hold its
value in the program as recorded. Copies right before a step bring the values that it reads to its
device. Values that it writes are valid only there afterwards. The edges are found anew at the end,
from what each node touches. The inside of a block is such a program, too (`blocks`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.graph.hazards import ordered
from cudasync.graph.placement import blocks
from cudasync.graph.placement.memory import Mirror
from cudasync.graph.placement.memory_partition import everything, named, touched
from cudasync.graph.placement.steps import made_for, needed, written_by
from cudasync.graph.retargeting import Aim, Move
from cudasync.graph.transfers import Transfer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cudasync.driver import Device
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.node import Node
    from cudasync.graph.placement.memory_partition import Piece, Pieces


class Placed:
    """The program while it is built, with counters for the report."""

    def __init__(
        self, nodes: Sequence[Node], pieces: Pieces, devices: Mapping[Node, Device]
    ) -> None:
        self._pieces = pieces
        self._devices = devices
        self._mirrors: dict[tuple[Piece, Device], Mirror] = {}
        # The memory of mirrors that the current node is on, and must keep.
        self._lent: list[Any] = []
        self._writers: dict[Piece, Node] = {}
        # For each part, the devices that have its value; None while no value of it counts.
        self._valid: dict[Piece, list[Collection[Device] | None]] = {
            piece: [None if piece.is_temporary else {piece.device}] * (len(piece.cuts) - 1)
            for piece in pieces
            if piece.device is not None
        }
        self._made: list[Node] = []
        # The moves of a launch; `_rounds` is how often it runs the current step, if that is known.
        self.moved_bytes = 0
        self.moves = 0
        self._rounds = 1
        # The number of steps that could not be made for their chosen device.
        self.refused = 0
        for node in nodes:
            self._add(node)
        self._bring_back()
        self.nodes = ordered(self._made)

    def _bring_back(self) -> None:
        """Copy the values that a launch leaves to their recorded places."""
        for piece in self._valid:
            if not piece.is_temporary and piece in self._writers:
                self._bring(piece.region, piece.device, self._writers[piece])

    def _add(self, node: Node) -> None:
        device = self._devices.get(node)
        if node.control is not None and any(each in self._devices for each in everything([node])):
            self._block(node)
            return
        if node.transfer is not None and named([node.transfer.target[0]]):
            self._transfer(node, device)
            return
        there = made_for(node, device)
        if there is None:
            self.refused += device is not None and device is not node.device
            self._stay(node)
            return
        assert device is not None
        for region in needed(node):
            self._bring(region, device, node)
        made = there if device is node.device else self._aimed(there, device)
        self._emit(made, written_by(node), device)

    def _stay(self, node: Node) -> None:
        """Run it where it was recorded, with its values brought there."""
        is_all = any(r.__class__ is Everywhere for part in node.hazards[0] for r in part)
        regions = [piece.region for piece in self._valid] if is_all else needed(node)
        for region in regions:
            self._bring(region, None, node)
        self._emit(node, regions if is_all else written_by(node), None)

    def _block(self, node: Node) -> None:
        """A block: the values that it touches are at its edges where its steps need them, in all
        rounds."""
        control: Any = node.control
        edges = blocks.edges(control, self._pieces, self._devices)
        for region, device in edges.entries(needed(node)):
            self._bring(region, device, node)
        around = self._valid, self._made, self._rounds
        valid = self._valid
        self._rounds *= getattr(control, "times", 1)
        bodies = []
        for body in control.bodies:
            self._valid = {**valid, **edges.valid(valid)}
            self._made = []
            for each in body:
                self._add(each)
            for region, device in edges.entries(written_by(node)):
                self._bring(region, device, node)
            bodies.append(ordered(self._made))
        self._valid, self._made, self._rounds = around
        control = control.with_bodies(bodies)
        if control.flag is not None and edges.flag_on not in (None, control.flag.device):
            region = self._there(control.flag.region, edges.flag_on)
            flag = replace(control.flag, region=region, device=edges.flag_on)
            control = replace(control, flag=flag)
        self._emit(node.controlling(control), (), None)
        for region in written_by(node):
            piece = self._pieces.of(region)
            if piece in valid:
                self._writers[piece] = self._made[-1]
                for at in piece.parts(region):
                    valid[piece][at] = edges.devices[piece, at]

    def _transfer(self, node: Node, device: Device | None) -> None:
        """A copy or fill, from the place of its source to the place of its target."""
        transfer: Any = node.transfer
        region = transfer.target[0]
        target = self._pieces.of(region)
        on = device or target.device
        if transfer.box is not None and on is not None:
            self._bring(region, on, node)
        source = transfer.source
        if source is not None:
            source = self._source(source, on, node)
        place = (self._there(region, on), on) if on is not None else transfer.target
        made = node
        if (place, source) != (transfer.target, transfer.source):
            made = node.transferring(replace(transfer, target=place, source=source))
            made.device = on or (source and source[1]) or node.device
        self._emit(made, (region,), on)

    def _source(self, source: Any, on: Device | None, node: Node) -> Any:
        """The place that a copy reads from: `on` if the value is there, else another device that
        has it."""
        region, device = source
        piece = self._pieces.of(region)
        valid = self._valid.get(piece)
        if valid is None:
            return source
        parts = [valid[at] for at in piece.parts(region)]
        others = sorted({d for part in parts if part for d in part}, key=_ordinal)
        for each in dict.fromkeys([on, device, *others]):
            if each is not None and all(part is None or each in part for part in parts):
                return self._there(region, each), each
        self._bring(region, device, node)
        return source

    def _emit(self, node: Node, written: Iterable[Region], device: Device | None) -> None:
        self._keep(node)
        self._made.append(node)
        for region in written:
            piece = self._pieces.of(region)
            valid = self._valid.get(piece)
            where = device or piece.device
            if valid is not None and where is not None:
                self._writers[piece] = node
                for at in piece.parts(region):
                    valid[at] = {where}

    def _bring(self, region: Region, device: Device | None, node: Node) -> None:
        """Copies for `node` that bring the value of `region` to the device; None is its recorded
        place."""
        if region[0] >= region[1]:
            return
        piece = self._pieces.of(region)
        valid = self._valid.get(piece)
        if valid is None:
            return
        device = device or piece.device
        assert device is not None
        run: list[int] = []
        source: Device | None = None
        for at in (*piece.parts(region), -1):
            has = valid[at] if at >= 0 else None
            comes_from = None if has is None or device in has else _first(has, piece.device)
            if run and comes_from is not source:
                self._move(piece, run, source, device, node)
                run = []
            if comes_from is not None:
                run.append(at)
                valid[at] = {*(has or ()), device}
            source = comes_from

    def _move(
        self, piece: Piece, parts: Sequence[int], source: Any, target: Device, node: Node
    ) -> None:
        """A copy of these consecutive parts."""
        region = type(piece.region)(piece.cuts[parts[0]], piece.cuts[parts[-1] + 1])
        to, of = (self._there(region, each, piece) for each in (target, source))
        made = node.moving(Transfer((to, target), (of, source)), target)
        self._keep(made)
        self._made.append(made)
        self.moves += self._rounds
        self.moved_bytes += self._rounds * (region.end - region.start)

    def _there(self, region: Region, device: Device, piece: Piece | None = None) -> Region:
        """The place of these bytes on `device`."""
        piece = piece or self._pieces.of(region)
        if device is piece.device:
            return region
        mirror = self._mirrors.get((piece, device))
        if mirror is None:
            mirror = self._mirrors[piece, device] = Mirror.of(piece.region, device)
        self._lent.append(mirror.memory)
        return mirror.region(region)

    def _aimed(self, node: Node, device: Device) -> Node:
        """The node, on the mirrors of the memory that it touches."""
        aim = Aim()
        for piece in {self._pieces.of(each): None for each in touched(node)}:
            start = self._there(piece.region, device, piece).start
            aim.moves.append(Move(*piece.region, start - piece.region.start))
        accesses = aim.accesses(node.hazards)
        if node.expression is not None:
            made = node.computing_at(node.expression.aimed(aim), accesses)
        else:
            assert node.launch is not None
            made = node.launching(aim.launch(node, {}), accesses)
        made.device = device
        return made

    def _keep(self, made: Node) -> None:
        """Let it keep the mirrors that it is on alive."""
        for memory in self._lent:
            made.keep(memory)
        self._lent.clear()


def _first(devices: Collection[Device], home: Device | None) -> Device:
    """A device that has a value: the recorded one, if it has."""
    return home if home is not None and home in devices else min(devices, key=_ordinal)


def _ordinal(device: Device) -> int:
    return device.ordinal
