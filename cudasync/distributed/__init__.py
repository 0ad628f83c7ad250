"""Floor 5. Several devices, several processes: collectives as ops, between the ranks of a program.

`cudasync.distributed` is the public name of this package, which is loaded at its first use.
"""

from __future__ import annotations

from cudasync.distributed.communicator import Communicator, Group
from cudasync.distributed.errors import (
    BackendUnavailable,
    CollectiveMismatch,
    CollectiveTimeout,
    CommunicatorBroken,
    DistError,
    RankFailed,
)
from cudasync.distributed.initialisation import init
from cudasync.distributed.work import Work

__all__ = [
    "BackendUnavailable",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "Communicator",
    "CommunicatorBroken",
    "DistError",
    "Group",
    "RankFailed",
    "Work",
    "init",
]


def __dir__() -> list[str]:
    return sorted(__all__)
