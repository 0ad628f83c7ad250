"""Floor 5. Values by key that devices share: a sum at each push, an optimizer, copies at each pull.

`cudasync.kvstore` is the door; nothing of it is loaded before it is asked for.
"""

from __future__ import annotations

from cudasync.kvstore.optimizers import LAMB, SGD, AdaGrad, Adam, Optimizer
from cudasync.kvstore.store import KVStore, create

__all__ = ["LAMB", "SGD", "AdaGrad", "Adam", "KVStore", "Optimizer", "create"]
