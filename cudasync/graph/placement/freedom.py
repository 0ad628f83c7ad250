"""Floor 3, placement. Which steps of a program may be done on another device than was recorded.

Memory of `cs.ANY` may be anywhere, and so may what is computed of it alone, wherever the result
goes. A device that the user has named stays what it is: a step that reads anything there is done
there. So are functions of the user's, which have hold of their memory, and blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.placement.pieces import named, touched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.placement.pieces import Piece, Pieces


def free_nodes(nodes: Sequence[Node], pieces: Pieces) -> set[Node]:
    """Those that may be done on any device."""
    found: set[Node] = set()
    # Parts of memory elsewhere that hold what may be computed anywhere.
    made: set[tuple[Piece, int]] = set()

    def is_free(piece: Piece, region: tuple[int, int]) -> bool:
        return piece.is_anywhere or all((piece, at) in made for at in piece.parts(region))

    for node in nodes:
        only_read, updated, written = node.hazards[0]
        reads = [(pieces.of(each), each) for each in named((*only_read, *updated))]
        writes = [(pieces.of(each), each) for each in named((*updated, *written))]
        if node.transfer is not None:
            target = node.transfer.target[0]
            can_move = bool(named([target])) and pieces.of(target).is_anywhere
        else:
            can_move = (
                _can_move(node)
                and all(pieces.of(each).device is node.device for each in touched(node))
                and all(is_free(*each) for each in reads)
                and (bool(reads) or any(piece.is_anywhere for piece, _ in writes))
            )
        if can_move:
            found.add(node)
        for piece, region in writes:
            parts = ((piece, at) for at in piece.parts(region))
            made.update(parts) if can_move else made.difference_update(parts)
    return found


def _can_move(node: Node) -> bool:
    """True for a launch that is the same elsewhere: without variables of a module, which each
    device has of its own, and without memory of others by peer access."""
    if node.launch is None or node.device is None or node.is_alone:
        return False
    kernel = node.launch.kernel
    is_own = kernel.module.kernel(kernel.name) is kernel
    return is_own and not node.hazards[1] and not node.hazards[2]
