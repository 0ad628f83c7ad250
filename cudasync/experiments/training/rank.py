"""What each process of a way of several runs: `python -m cudasync.experiments.training.rank`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import cudasync as cs
from cudasync.experiments.training import by_data, digits
from cudasync.experiments.training.model import Settings
from cudasync.experiments.training.outcome import trained


def main(order: str) -> None:
    """Train as the file `order` says; rank 0 writes what came of it beside it."""
    path = Path(order)
    said = json.loads(path.read_text())
    data, settings = digits.read(path.with_name(said["data"])), Settings(**said["settings"])
    comm = cs.distributed.init("mpi")
    # What is made at the first use, code of kernels and connections, is not timed.
    by_data.train(data, Settings(**{**said["settings"], "steps": 1}), comm)
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


if __name__ == "__main__":
    main(sys.argv[1])
