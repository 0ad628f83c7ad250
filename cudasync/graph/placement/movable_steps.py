"""Floor 3, placement. Finds the steps that may run on another device than the recorded one.

Memory on `cs.ANY` may be anywhere, and so may values computed from it alone, wherever the result
goes. A device that the user names stays: a step that reads anything there runs there. So do the
user's functions, whose memory cannot be replaced. A block is free as a whole if its flag and
everything inside are free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.control import Repeat
from cudasync.graph.placement.memory_partition import everything, named, touched
from cudasync.graph.retargeting import is_unclear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.placement.memory_partition import Piece, Pieces


def free_nodes(nodes: Sequence[Node], pieces: Pieces) -> set[Node]:
    """The nodes that may run on any device, including those inside of blocks."""
    search = _Search(pieces)
    search.program(nodes)
    return search.found


class _Search:
    """A walk through a program in its order."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self.found: set[Node] = set()
        # Parts of other memory that hold values which may be computed anywhere.
        self._made: set[tuple[Piece, int]] = set()

    def program(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            is_free = self._step(node) if node.control is None else self._block(node)
            (self.found.add if is_free else self.found.discard)(node)

    def _step(self, node: Node) -> bool:
        pieces = self._pieces
        only_read, updated, written = node.hazards[0]
        reads = [(pieces.of(each), each) for each in named((*only_read, *updated))]
        writes = [(pieces.of(each), each) for each in named((*updated, *written))]
        if node.transfer is not None:
            target = node.transfer.target[0]
            is_free = bool(named([target])) and pieces.of(target).is_anywhere
        else:
            is_free = (
                _can_move(node)
                and not is_unclear(node, [pieces.of(each).region for each in touched(node)])
                and all(pieces.of(each).device is node.device for each in touched(node))
                and all(self._is_free(*each) for each in reads)
                and (bool(reads) or any(piece.is_anywhere for piece, _ in writes))
            )
        for piece, region in writes:
            parts = ((piece, at) for at in piece.parts(region))
            if is_free:
                self._made.update(parts)
            else:
                self._made.difference_update(parts)
        return is_free

    def _block(self, node: Node) -> bool:
        """Repeat the search until the parts that are free before a round are free after each
        round."""
        control = node.control
        assert control is not None
        while True:
            entry = set(self._made)
            behind = []
            for body in control.bodies:
                self._made = set(entry)
                self.program(body)
                behind.append(self._made)
            left = set.intersection(*behind) if behind else entry
            self._made = entry & left
            if not control.is_loop or self._made == entry:
                break
        can_move = self._is_whole(node)
        if isinstance(control, Repeat) and control.times:
            self._made = left
        return can_move

    def _is_whole(self, node: Node) -> bool:
        """True for a block that may run on any device as a whole."""
        control = node.control
        assert control is not None
        inside = [each for each in everything([node]) if each is not node]
        devices = {each.device for each in inside if each.control is None}
        if len(devices) != 1 or devices == {None} or not self.found.issuperset(inside):
            return False
        flag = control.flag
        return flag is None or (
            flag.device in devices and self._is_free(self._pieces.of(flag.region), flag.region)
        )

    def _is_free(self, piece: Piece, region: tuple[int, int]) -> bool:
        made = self._made
        return piece.is_anywhere or all((piece, at) in made for at in piece.parts(region))


def _can_move(node: Node) -> bool:
    """True for a launch that is the same elsewhere: without variables of a module, which each
    device has for itself, and without peer access to other devices' memory."""
    if node.launch is None or node.device is None or node.is_alone:
        return False
    kernel = node.launch.kernel
    is_own = kernel.module.kernel(kernel.name) is kernel
    return is_own and not node.hazards[1] and not node.hazards[2]
