"""Floor 5. All ranks compare their plans, once, before anything depends on them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync import xp
from cudasync.array import empty

if TYPE_CHECKING:
    from cudasync.distributed.communicator import Communicator


def raise_unless_all_plan(comm: Communicator, *plan: Any) -> None:
    """Raise ValueError on all ranks if the repr of the plan differs on one of them.

    Between processes it blocks until all ranks are here; one process has only one plan.
    """
    if comm.size == len(comm.ranks):
        return
    digest = np.frombuffer(hashlib.sha256(repr(plan).encode()).digest(), np.uint8)
    mine = xp.asarray(digest, device=comm.devices[0])
    rows = empty((comm.size * digest.size,), np.uint8, device=comm.devices[0])
    comm.all_gather(mine, rows)
    found = rows.numpy().reshape(comm.size, -1)
    others = [rank for rank in range(comm.size) if not np.array_equal(found[rank], found[0])]
    if others:
        raise ValueError(
            f"rank{'s' if len(others) > 1 else ''} {', '.join(map(str, others))} and rank 0 have "
            f"different plans: names, order, shapes, dtypes and options must be equal on all ranks"
        )
