"""The ways to train: what each is called, what it needs, and what it runs in this process."""

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
    """One way; with `processes` it is run by so many, each of which is one of `rank`.

    With `servers` it is asynchronous: these have the weights, over `transport`.
    """

    name: str
    train: Train | None = None
    devices: int = 1
    processes: int = 0
    servers: int = 0
    transport: str = ""


def _local(count: int) -> Any:
    return cs.distributed.init("local", devices=range(count))


# Steps that a worker may be ahead.
AHEAD = 4


def workers(count: int, transport: Any, servers: int) -> list[cs.kvstore.KVStore]:
    """So many workers of this process; over MPI the one that this rank is."""
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
    """Servers that go with the training: the next one begins with others."""
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
    Way("2 processes, by data", processes=2),
    Way("4 processes, by data", processes=4),
    Way("2 workers, 2 servers here", _with_threads, servers=2),
    Way("2 workers, 2 servers of MPI", processes=4, servers=2, transport="mpi"),
    Way("2 workers, 2 servers of Ray", processes=1, servers=2, transport="ray"),
)
