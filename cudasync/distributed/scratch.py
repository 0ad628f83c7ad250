"""Floor 5. Memory that a local communicator keeps for parts under way.

New memory for each step costs more than the step where pages have to be had from the system. What
is kept is used again by the next collective, which the engine orders behind the last by its bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudasync import xp
from cudasync.array import empty, empty_like
from cudasync.array.host.memory import CPU
from cudasync.engine import engine
from cudasync.graph.recorder import Recorder

# A longer part is in new memory, which goes after it.
MOST_KEPT_BYTES = 32 << 20


class Scratch:
    """Two pieces of memory for each rank, in turn: one arrives while the other is read."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, int], tuple[object, Any]] = {}
        self._turn: dict[int, int] = {}

    def like(self, x: Any, rank: int) -> Any:
        """An array as `x`, whose content is nobody's; it stays so until the rank's next but one.

        New memory where it is long, and in a graph, whose memory is planned with it.
        """
        current: Any = engine()
        if not 0 < x.nbytes <= MOST_KEPT_BYTES or isinstance(current, Recorder):
            return empty_like(x)
        turn = self._turn[rank] = 1 - self._turn.get(rank, 0)
        # A reset of the device takes its memory along.
        life = None if x.device == CPU else x.device.context.token
        kept_life, piece = self._pieces.get((rank, turn), (None, None))
        if piece is None or kept_life is not life or piece.nbytes < x.nbytes:
            piece = empty(1 << (x.nbytes - 1).bit_length(), np.uint8, device=x.device)
            self._pieces[rank, turn] = life, piece
        return xp.reshape(piece[: x.nbytes].view(x.dtype), x.shape)
