"""Floor 5. The server of each part of each key, which is the same on every worker."""

from __future__ import annotations

import math
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cudasync.engine import Var

if TYPE_CHECKING:
    from cudasync.array.array import Array
    from cudasync.kvstore.arguments import Key
    from cudasync.kvstore.servers.joint_exchange import JointExchange

# MXNet's MXNET_KVSTORE_BIGARRAY_BOUND: a key with this many elements is on all servers.
BIG_ELEMENTS = 1_000_000


class Part:
    """A run of a key's elements, in C order, on one server."""

    def __init__(self, server: int, start: int, stop: int, shape: tuple[int, ...]) -> None:
        self.server = server
        self.start, self.stop = start, stop
        # The shape of the part on its server.
        self.shape = shape
        # Written by every op on this part, so that these ops keep the program's order.
        self.token = Var()
        # The newest version that this worker has seen.
        self.version = 0
        # Of the last push or pull: None if no pull may join it. The engine knows of other ops.
        self.last_push: JointExchange | None = None

    def of(self, x: Array) -> Array:
        """This part of a contiguous array of the key's size: a view, or the array itself."""
        if x.size == self.stop - self.start:
            return x
        return x.reshape(-1)[self.start : self.stop]


class Placed:
    """A key: shape, dtype, and its parts."""

    def __init__(
        self, key: Key, shape: tuple[int, ...], dtype: Any, servers: int, big_elements: int
    ) -> None:
        self.shape, self.dtype = shape, dtype
        size = math.prod(shape)
        if servers == 1 or size < big_elements:
            self.parts = [Part(_home(key, servers), 0, size, self.shape)]
            return
        # Whole rows to each server, if there are enough rows, so that rows can be pulled there.
        has_rows = self.shape[0] >= servers
        units = self.shape[0] if has_rows else size
        unit = math.prod(shape[1:]) if has_rows else 1
        bounds = [units * number // servers for number in range(servers + 1)]
        self.parts = []
        for server, (start, stop) in enumerate(pairwise(bounds)):
            own = (stop - start, *shape[1:]) if has_rows else (stop - start,)
            self.parts.append(Part(server, start * unit, stop * unit, own))

    @property
    def is_by_rows(self) -> bool:
        """True if every part has whole rows."""
        return bool(self.shape) and self.parts[0].shape[1:] == self.shape[1:]


def _home(key: Key, servers: int) -> int:
    return key % servers if isinstance(key, int) else zlib.crc32(key.encode()) % servers
