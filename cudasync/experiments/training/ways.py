"""The ways to train: what each is called, what it needs, and what it runs in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.experiments.training import alone, by_data, by_stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.experiments.training.digits import Data
    from cudasync.experiments.training.model import Settings

    Train = Callable[[Data, Settings], tuple[cs.Array, dict[str, cs.Array]]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way; with `processes` it is run by so many, each of which is one of `rank`."""

    name: str
    train: Train | None = None
    devices: int = 1
    processes: int = 0


def _local(count: int) -> Any:
    return cs.distributed.init("local", devices=range(count))


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
)
