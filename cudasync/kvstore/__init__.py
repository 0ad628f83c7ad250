"""Floor 5. Values by key that devices share: a sum at each push, an optimizer, copies at each pull.

`cudasync.kvstore` is the door; nothing of it is loaded before it is asked for.
"""

from __future__ import annotations

from cudasync.kvstore.base import KVStore
from cudasync.kvstore.creating import create
from cudasync.kvstore.errors import ServerLost, ServerUnavailable, WorkersBehind
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
