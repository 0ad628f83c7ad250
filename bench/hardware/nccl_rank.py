"""Every collective of NCCL with one rank, called at once and recorded in a graph.

    PYTHONPATH=.:tests CUDASYNC_DEVICE=cuda python -m bench.hardware.nccl_rank [--reference]

Where the library or a GPU is missing, every case is left out, and says why. `--reference` calls the
tests' reference instead, which is how this program itself is tested.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache

import numpy as np
from helpers.distributed.reference_nccl import ReferenceNccl

import cudasync as cs
from bench.hardware import cases
from cudasync.distributed import nccl_library

TIMEOUT_S = 15.0
LENGTH = 1 << 16


def exchange(comm: cs.distributed.Communicator, x: cs.Array, y: cs.Array) -> None:
    with comm.group():
        comm.recv(y, 0)
        comm.send(x, 0)


# With one rank each of them leaves in `y` what `x` holds.
COLLECTIVES: dict[str, Callable[..., object]] = {
    "all_reduce": lambda comm, x, y: comm.all_reduce(x, y),
    "all_gather": lambda comm, x, y: comm.all_gather(x, y),
    "reduce_scatter": lambda comm, x, y: comm.reduce_scatter(x, y, op="mean"),
    "all_to_all": lambda comm, x, y: comm.all_to_all(x, y),
    "gather": lambda comm, x, y: comm.gather(x, y),
    "scatter": lambda comm, x, y: comm.scatter(x, y),
    "reduce": lambda comm, x, y: (cs.copy(y, x), comm.reduce(y, op="max")),
    "broadcast": lambda comm, x, y: (cs.copy(y, x), comm.broadcast(y)),
    "send and recv": exchange,
}
WAYS = ("at once", "in a graph")
NAMES = [f"{name} {way}" for way in WAYS for name in COLLECTIVES]


@cache
def communicator(*, is_reference: bool) -> cs.distributed.Communicator:
    if is_reference:
        found = ReferenceNccl(1)
        nccl_library.library = lambda: found
    try:
        return cs.distributed.init("nccl", timeout=TIMEOUT_S)
    except cs.distributed.BackendUnavailable as error:
        raise cases.LeftOut(str(error)) from None


def run(options: argparse.Namespace, number: int) -> None:
    comm = communicator(is_reference=options.reference)
    way, collective = divmod(number, len(COLLECTIVES))
    call = list(COLLECTIVES.values())[collective]
    x = cs.array(np.arange(LENGTH, dtype=np.float32))
    y = cs.zeros(LENGTH, np.float32)
    rounds = 3
    if WAYS[way] == "at once":
        for _ in range(rounds):
            x += 1
            call(comm, x, y)
    else:
        with cs.graph() as graph:
            x += 1
            call(comm, x, y)
        executable = graph.instantiate()
        for _ in range(rounds):
            executable.launch()
    np.testing.assert_array_equal(y.numpy(), np.arange(LENGTH, dtype=np.float32) + rounds)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reference", action="store_true", help="the tests' reference instead")


if __name__ == "__main__":
    raise SystemExit(
        cases.main(
            "bench.hardware.nccl_rank", __doc__, lambda options: NAMES, run, options=add_options
        )
    )
