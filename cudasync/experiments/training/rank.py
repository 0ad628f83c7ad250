"""What each process of a way of several runs: `python -m cudasync.experiments.training.rank`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cudasync as cs
from cudasync.experiments.training import by_data, by_servers, digits, ways
from cudasync.experiments.training.model import Settings
from cudasync.experiments.training.outcome import trained


def main(order: str) -> None:
    """Train as the file `order` says; rank 0 writes what came of it beside it."""
    path = Path(order)
    said = json.loads(path.read_text())
    data, settings = digits.read(path.with_name(said["data"])), Settings(**said["settings"])
    once = Settings(**{**said["settings"], "steps": 1})
    if said["servers"]:
        _by_servers(path, said, data, once, settings)
        return
    comm = cs.distributed.init("mpi")
    # What is made at the first use, code of kernels and connections, is not timed.
    by_data.train(data, once, comm)
    cs.waitall()
    comm.barrier()
    begin = time.perf_counter()
    losses, weights = by_data.train(data, settings, comm)
    cs.waitall()
    seconds = time.perf_counter() - begin
    found = trained(said["name"], losses, weights, data, seconds)
    if comm.rank == 0:
        path.with_suffix(".found").write_text(json.dumps(asdict(found)))
    comm.barrier()


def _by_servers(
    path: Path, said: dict[str, Any], data: digits.Data, once: Settings, settings: Settings
) -> None:
    """The same for workers; a rank that is a server does not come back from `workers`."""
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
