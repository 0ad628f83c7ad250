"""A rank that gives arrays to mpi4py itself: pending writes and reads of them come first."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from cudasync import xp

world = MPI.COMM_WORLD
for device in (0, "cpu"):
    for turn in range(1, 6):
        ones = xp.ones(1000, device=device)
        x = ones * turn
        total = xp.zeros(1000, device=device)
        before = total + 5
        # Both are written by pending ops, and `total` is read by one.
        world.Allreduce(x, total)
        assert (total.numpy() == turn * world.size).all(), (device, turn, total)
        assert (before.numpy() == 5).all(), (device, turn, before)
        received = xp.zeros(1000, device=device)
        world.Sendrecv(x + 1, 1 - world.rank, recvbuf=received, source=1 - world.rank)
        assert (received.numpy() == np.float32(turn + 1)).all(), (device, turn, received)
print("sums are right", flush=True)
