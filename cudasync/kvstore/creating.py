"""Floor 5. `create`: a key-value store by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.kvstore.store import CopiesStore

if TYPE_CHECKING:
    from cudasync.kvstore.base import KVStore

TYPES = ("local", "device", "dist_sync")


def create(name: str = "local", *, timeout: float = 300.0) -> KVStore:
    """A key-value store.

    "local" and "device" are of one process: the first updates on the CPU, the second on the
    devices. "dist_sync" is of the processes that mpiexec started, a worker each: a push brings in
    the sum of what all workers push, which is the same on all. All workers make the same calls in
    the same order; one that takes longer than `timeout` seconds is a CollectiveTimeout on the
    others. Blocks until all workers are here.

    Raises ValueError for another name, BackendUnavailable without mpi4py.
    """
    if name not in TYPES:
        raise ValueError(f"a key-value store is one of {', '.join(TYPES)}, not {name!r}")
    if name != "dist_sync":
        return CopiesStore(name)
    from cudasync.kvstore.between import Between

    return CopiesStore(name, Between(timeout))
