"""Floor 5. Memory that a local communicator keeps for parts under way.

New memory for each step costs more than the step if the system has to supply pages. The next
collective uses the kept memory again; hazards on these bytes order it behind the last collective.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudasync import xp
from cudasync.array import empty, empty_like
from cudasync.array.host.memory import CPU
from cudasync.engine import engine
from cudasync.graph.recorder import Recorder

# A longer part gets new memory, which is freed afterwards.
MOST_KEPT_BYTES = 32 << 20


class Scratch:
    """Two pieces of memory for each rank, used in turn: one receives while the other is read."""

    def __init__(self) -> None:
        # By rank and turn: the device's life, the memory, and the last array in it.
        self._pieces: dict[tuple[int, int], tuple[object, Any, Any]] = {}
        self._turn: dict[int, int] = {}

    def like(self, x: Any, rank: int) -> Any:
        """An array like `x`, with any content; it is the caller's until the rank's next but one.

        A long array gets new memory. So does any array in a graph, which plans its own memory.
        """
        current: Any = engine()
        if not 0 < x.nbytes <= MOST_KEPT_BYTES or isinstance(current, Recorder):
            return empty_like(x)
        turn = self._turn[rank] = 1 - self._turn.get(rank, 0)
        # A reset of the device frees its memory.
        life = None if x.device == CPU else x.device.context.token
        kept_life, piece, last = self._pieces.get((rank, turn), (None, None, None))
        if piece is None or kept_life is not life or piece.nbytes < x.nbytes:
            piece, last = empty(1 << (x.nbytes - 1).bit_length(), np.uint8, device=x.device), None
        if last is None or last.shape != x.shape or last.dtype != x.dtype:
            last = xp.reshape(piece[: x.nbytes].view(x.dtype), x.shape)
        self._pieces[rank, turn] = life, piece, last
        return last
