"""The program of each process of a way: `python -m cudasync.experiments.training.rank`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync import xp
from cudasync.experiments.training import by_data, by_servers, by_stages, digits, ways
from cudasync.experiments.training.model import Settings
from cudasync.experiments.training.outcome import trained

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.experiments.training.digits import Data

    Found = tuple[cs.Array, dict[str, cs.Array]]


def main(order: str) -> None:
    """Train as the file `order` says; rank 0 writes the result to a file beside it."""
    path = Path(order)
    said = json.loads(path.read_text())
    data, settings = digits.read(path.with_name(said["data"])), Settings(**said["settings"])
    once = Settings(**{**said["settings"], "steps": 1})
    if said["servers"]:
        _by_servers(path, said, data, once, settings)
        return
    comm = cs.distributed.init("mpi")
    train = _in_step(said["by"], comm)
    # First-use costs, such as kernel code and connections, are not timed.
    train(data, once, "once ")
    cs.waitall()
    comm.barrier()
    begin = time.perf_counter()
    losses, weights = train(data, settings, "")
    cs.waitall()
    seconds = time.perf_counter() - begin
    found = trained(said["name"], losses, weights, data, seconds)
    if comm.rank == 0:
        path.with_suffix(".found").write_text(json.dumps(asdict(found)))
    comm.barrier()


def _in_step(by: str, comm: cs.distributed.Communicator) -> Callable[[Data, Settings, str], Found]:
    """The program that ranks run together; its label separates several trainings."""
    if by == "data":
        return lambda data, settings, label: by_data.train(data, settings, comm)
    if by == "stages":
        return lambda data, settings, label: by_stages.train(data, settings, comm)
    # A store without servers: the pushes of all workers are summed, and each worker updates.
    store = cs.kvstore.create("dist_sync")

    def by_store(data: Data, settings: Settings, label: str) -> Found:
        losses, weights = by_servers.train(data, settings, [store], label)
        # A worker's loss is scaled from its own rows to all rows, so the mean is the loss.
        whole = xp.asarray(losses.numpy(), device=comm.devices[0])
        comm.all_reduce(whole, op="mean")
        return whole, weights

    return by_store


def _by_servers(
    path: Path, said: dict[str, Any], data: digits.Data, once: Settings, settings: Settings
) -> None:
    """The same for workers; on a server's rank the call of `workers` does not return."""
    stores = ways.workers(2, said["transport"], said["servers"])
    by_servers.train(data, once, stores, "once ")
    cs.waitall()
    begin = time.perf_counter()
    losses, weights = by_servers.train(data, settings, stores)
    cs.waitall()
    seconds = time.perf_counter() - begin
    found = trained(said["name"], losses, weights, data, seconds, is_asynchronous=True)
    if stores[0].rank == 0:
        path.with_suffix(".found").write_text(json.dumps(asdict(found)))
    for store in stores:
        store.close()


if __name__ == "__main__":
    main(sys.argv[1])
