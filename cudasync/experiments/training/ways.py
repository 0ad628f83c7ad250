"""The ways to train: the name of each, its needs, and its function in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.experiments.training import alone, by_data, by_servers, by_stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.experiments.training.digits import Data
    from cudasync.experiments.training.model import Settings

    Train = Callable[[Data, Settings], tuple[cs.Array, dict[str, cs.Array]]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to train. With `processes`, each of these processes runs `rank`.

    `by` names the program that ranks run together: "data", "stages" or "store". With `servers` the
    way is asynchronous: servers have the weights, over `transport`.
    """

    name: str
    train: Train | None = None
    devices: int = 1
    processes: int = 0
    by: str = ""
    servers: int = 0
    transport: str = ""


def _local(count: int) -> Any:
    return cs.distributed.init("local", devices=range(count))


# The most steps that a worker may be ahead.
AHEAD = 4


def workers(count: int, transport: Any, servers: int) -> list[cs.kvstore.KVStore]:
    """`count` workers of this process; over MPI this rank's single worker."""
    if transport == "mpi":
        return [cs.kvstore.create("dist_async", servers=servers, staleness=AHEAD, timeout=60)]
    return [
        cs.kvstore.create(
            "dist_async",
            servers=servers,
            transport=transport,
            rank=rank,
            num_workers=count,
            staleness=AHEAD,
            timeout=60,
        )
        for rank in range(count)
    ]


def _with_threads(data: Data, settings: Settings) -> tuple[cs.Array, dict[str, cs.Array]]:
    """Train with servers of its own, so that the next training begins anew."""
    return by_servers.train(data, settings, workers(2, cs.kvstore.InProcessServers(2), 2))


WAYS = (
    Way("one device", alone.train),
    Way(
        "two devices, by data",
        lambda data, settings: by_data.train(data, settings, _local(2)),
        devices=2,
    ),
    Way(
        "two devices, in stages",
        lambda data, settings: by_stages.train(data, settings, _local(2)),
        devices=2,
    ),
    Way("2 processes, by data", processes=2, by="data"),
    Way("4 processes, by data", processes=4, by="data"),
    Way("2 processes, by store", processes=2, by="store"),
    Way("4 processes, by store", processes=4, by="store"),
    Way("2 processes, in stages", processes=2, by="stages"),
    Way("2 workers, 2 servers here", _with_threads, servers=2),
    Way("2 workers, 2 servers of MPI", processes=4, servers=2, transport="mpi"),
    Way("2 workers, 2 servers of Ray", processes=1, servers=2, transport="ray"),
)
