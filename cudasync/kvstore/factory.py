"""Floor 5. `create`: a key-value store by its name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cudasync.distributed import init, nccl_library
from cudasync.distributed.initialisation import is_launched, raise_unless_seconds
from cudasync.kvstore.collective_store import Between
from cudasync.kvstore.device_sum import Across
from cudasync.kvstore.store import CopiesStore
from cudasync.xp.parameter_checks import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.distributed import Communicator
    from cudasync.kvstore.base import KVStore

TYPES = ("local", "device", "nccl", "dist_sync", "dist_async")
TRANSPORTS = ("mpi", "ray")


def create(
    name: str = "local",
    *,
    timeout: float = 300.0,
    servers: int = 1,
    transport: Any = "mpi",
    folder: Any = None,
    staleness: int | None = None,
    rank: int = 0,
    num_workers: int = 1,
    group: str = "kvstore",
    big_elements: int = 1_000_000,
) -> KVStore:
    """A key-value store.

    - "local", "device": a store of one process, which updates on the CPU or on the devices.
    - "dist_sync": a store of the processes that mpiexec started, a worker each. A push adds the sum
      of all workers' pushes of its key, with the same bits on all workers. All workers make the
      same calls; they may push keys in different orders. If a worker takes longer than `timeout`
      seconds, the other workers raise CollectiveTimeout. `create` blocks until all workers are
      here.
    - "nccl": sums by NCCL. A process alone works as with "device". Its GPUs that have a part of a
      sum meet at their first sum, which blocks. Processes that mpiexec started work as with
      "dist_sync", with each worker's values on its own GPU.
    - "dist_async": the values are on `servers` servers. They update a value by the optimizer as
      each worker's push arrives; no worker waits for another.

    For "dist_async", `transport` chooses the servers:

    - "mpi": the last ranks that mpiexec started. On these ranks `create` does not return: it
      serves until all workers have closed their stores, and then raises SystemExit(0). What stands
      before `create` runs on all ranks. A program has one such store.
    - "ray": actors of the Ray cluster that the program or RAY_ADDRESS names, otherwise of a cluster
      on this machine. `rank` and `num_workers` identify the worker; stores of one `group` share
      keys.
    - `kvstore.InProcessServers`: servers in this process, which stores share; `rank` as above.

    With `folder` servers write down each push before they answer, and a server that died comes back
    with all its pushes. The same call continues a job that begins again. Files that are damaged or
    missing, or that another job uses, are a ValueError or ServerLost. `staleness` bounds how
    many pushes of a key a worker may be ahead of another. A pull beyond this bound waits, but not
    for workers that were silent for half of `timeout`. Keys of `big_elements` and more are split
    over the servers.

    Raises ValueError for an unknown name and for numbers out of range; BackendUnavailable without
    mpi4py or Ray, or for "nccl" without NCCL or a GPU.
    """
    if name not in TYPES:
        raise ValueError(
            f"the type of a key-value store is one of {', '.join(TYPES)}, not {name!r}"
        )
    raise_unless_seconds(timeout)
    if name in ("local", "device"):
        return CopiesStore(name)
    if name == "dist_sync":
        return CopiesStore(name, Between(init("mpi", devices=["cpu"], timeout=timeout)))
    if name == "nccl":
        if is_launched():
            return CopiesStore(name, Between(init("nccl", timeout=timeout)))
        nccl_library.library()

        def among(devices: Sequence[Any]) -> Communicator:
            return init("nccl", devices=devices, timeout=timeout)

        return CopiesStore(name, across=Across(among, nccl_library.type_of))
    servers, rank, num_workers, big_elements = (
        whole(value, what)
        for value, what in (
            (servers, "servers"),
            (rank, "rank"),
            (num_workers, "num_workers"),
            (big_elements, "big_elements"),
        )
    )
    staleness = None if staleness is None else whole(staleness, "staleness")
    if big_elements < 1:
        raise ValueError(
            f"big_elements={big_elements} must be 1 or more: keys with as many elements are split"
        )
    if servers < 1 or (staleness is not None and staleness < 0) or not 0 <= rank < num_workers:
        raise ValueError(
            f"servers={servers} must be 1 or more, staleness={staleness} 0 or more, and "
            f"rank={rank} from 0 to num_workers - 1 = {num_workers - 1}"
        )
    from cudasync.kvstore.servers.store import ServersStore
    from cudasync.kvstore.servers.worker import Worker

    kept = None if folder is None else os.path.abspath(os.fspath(folder))
    if transport == "mpi":
        from cudasync.kvstore.servers import by_mpi

        way: Any
        way, rank, num_workers = by_mpi.join(servers, kept, timeout, timeout / 2)
    elif transport == "ray":
        from cudasync.kvstore.servers.by_ray import RayServers

        way = RayServers(servers, group, kept, timeout / 2)
    elif isinstance(transport, str):
        raise ValueError(f"transport must be one of {', '.join(TRANSPORTS)}, not {transport!r}")
    elif not hasattr(transport, "steps"):
        kind = type(transport).__name__
        raise TypeError(
            f"transport must be {', '.join(TRANSPORTS)} or InProcessServers, not {kind}"
        )
    else:
        way = transport
    worker = Worker(
        way, rank, num_workers, staleness=staleness, timeout=timeout, big_elements=big_elements
    )
    return ServersStore(worker)
