"""Floor 5. Values by key that devices share: a sum at each push, an optimizer, copies at each pull.

`cudasync.kvstore` is the public name of this package, which is loaded at its first use.
"""

from __future__ import annotations

from cudasync.kvstore.base import KVStore
from cudasync.kvstore.errors import ServerLost, ServerUnavailable, WorkersBehind
from cudasync.kvstore.factory import create
from cudasync.kvstore.optimizers import LAMB, SGD, AdaGrad, Adam, Optimizer
from cudasync.kvstore.servers.in_process import InProcessServers

__all__ = [
    "LAMB",
    "SGD",
    "AdaGrad",
    "Adam",
    "InProcessServers",
    "KVStore",
    "Optimizer",
    "ServerLost",
    "ServerUnavailable",
    "WorkersBehind",
    "create",
]


def __dir__() -> list[str]:
    return sorted(__all__)
