"""Floor 5. Values by key that devices share: a sum at each push, an optimizer, copies at each pull.

`cudasync.kvstore` is the door; nothing of it is loaded before it is asked for.
"""

from __future__ import annotations

from cudasync.kvstore.base import KVStore
from cudasync.kvstore.creating import create
from cudasync.kvstore.optimizers import LAMB, SGD, AdaGrad, Adam, Optimizer

__all__ = ["LAMB", "SGD", "AdaGrad", "Adam", "KVStore", "Optimizer", "create"]
