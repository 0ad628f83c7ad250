"""Floor 3, placement. Which steps of a program may be done on another device than was recorded.

Memory of `cs.ANY` may be anywhere, and so may what is computed of it alone, wherever the result
goes. A device that the user has named stays what it is: a step that reads anything there is done
there. So are functions of the user's, which have hold of their memory. A block is free as a whole
where all that is inside is, and its flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.control import Repeat
from cudasync.graph.placement.pieces import everything, named, touched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.placement.pieces import Piece, Pieces


def free_nodes(nodes: Sequence[Node], pieces: Pieces) -> set[Node]:
    """Those that may be done on any device, inside of blocks, too."""
    search = _Search(pieces)
    search.program(nodes)
    return search.found


class _Search:
    """A walk through a program in its order."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self.found: set[Node] = set()
        # Parts of memory elsewhere that hold what may be computed anywhere.
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
        """What is free before a round has to be free behind each, else it is looked at again."""
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
        """True for a block that may be done on any device as it is."""
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
    device has of its own, and without memory of others by peer access."""
    if node.launch is None or node.device is None or node.is_alone:
        return False
    kernel = node.launch.kernel
    is_own = kernel.module.kernel(kernel.name) is kernel
    return is_own and not node.hazards[1] and not node.hazards[2]
