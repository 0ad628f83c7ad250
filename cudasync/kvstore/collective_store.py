"""Floor 5. Stores without a server between workers, each a rank: sums by collectives.

"dist_sync" has an MPI communicator on the CPU, "nccl" an NCCL communicator on the GPUs. All workers
make the same calls in the same order. Sums have the same bits on all workers; DESIGN.md says how
these bits differ from a sum in one process.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync import xp
from cudasync.array.copies.copy import copy
from cudasync.array.host.memory import CPU, view_of
from cudasync.distributed import DistError
from cudasync.distributed.mpi import MpiCommunicator
from cudasync.engine import engine
from cudasync.kvstore.bit_packing import Packed
from cudasync.kvstore.device_sum import at

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.array.array import Array
    from cudasync.distributed import Communicator
    from cudasync.kvstore.arguments import Key
    from cudasync.kvstore.compression import Compression


class Between:
    """The workers of a store: the ranks of `comm`, with all shared arrays on its `place`."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        (self.place,) = comm.devices
        # By key. Workers may push keys in any order: the calls of each key match by themselves.
        self._lanes: dict[Key, Communicator] = {}

    def add(self, keys: list[Key]) -> None:
        """Note new keys, which all workers have agreed on. Blocks."""
        comm = self.comm
        lanes = comm.lanes(len(keys)) if isinstance(comm, MpiCommunicator) else [comm] * len(keys)
        self._lanes.update(zip(keys, lanes, strict=True))

    def agree(self, given: list[tuple[Key, Array]]) -> None:
        """Block until all workers are here with the same keys; ValueError on all if they differ.

        TypeError for a dtype that the communicator cannot sum.
        """
        for _, each in given:
            self.comm.raise_unless_it_computes(each.dtype)
        told = json.dumps([[key, each.shape, each.dtype.str] for key, each in given])
        digest = np.frombuffer(hashlib.sha256(told.encode()).digest()[:8], np.int64)
        of_all = xp.empty((self.size,), dtype=xp.int64, device=self.place)
        self.comm.all_gather(xp.asarray(digest, device=self.place), of_all)
        if len(set(of_all.numpy().tolist())) > 1:
            raise ValueError(
                f"workers init different keys, shapes or dtypes; rank {self.rank}: {told}"
            )

    def total(
        self,
        key: Key,
        own: Array,
        into: Array,
        compression: Compression | None,
        priority: int,
        updater: object,
    ) -> None:
        """Push ops that make `into` the sum of all workers' `own`.

        Debug mode also compares the settings of updater and compression.
        """
        comm = self._lanes[key]
        if isinstance(comm, MpiCommunicator) and comm.debug and comm is not self.comm:
            by = (
                "no updater" if updater is None else getattr(updater, "__qualname__", repr(updater))
            )
            comm.remark = f" of key {key!r}, by {by}, {compression or 'not compressed'}"
        if compression is None:
            comm.all_reduce(own, into, priority=priority)
            return
        packed = Packed(compression.kind, compression.threshold)
        sent, size = at(CPU, compression(key, 0, own), priority), packed.size_bytes(own.size)
        mine = xp.empty((size,), dtype=xp.uint8, device=CPU)
        gathered = xp.empty((size * self.size,), dtype=xp.uint8, device=self.place)

        def pack() -> None:
            view_of(mine)[...] = packed.pack(view_of(sent))

        current: Any = engine()
        current.push(pack, reads=[sent], writes=[mine], name=f"pack {key!r}", priority=priority)
        comm.all_gather(at(self.place, mine, priority), gathered, priority=priority)
        of_all = at(CPU, gathered, priority)
        total = into if into.device == CPU else xp.empty(into.shape, dtype=into.dtype, device=CPU)

        def add() -> None:
            target, rows = view_of(total), view_of(of_all).reshape(self.size, size)
            parts = [packed.unpack(row, target.size, target.dtype) for row in rows]
            for each in parts[1:]:
                parts[0] += each
            target[...] = parts[0].reshape(target.shape)

        current.push(add, reads=[of_all], writes=[total], name=f"add {key!r}", priority=priority)
        if total is not into:
            copy(into, total, priority=priority)

    def on_rank_0(self, does: Callable[[], None]) -> None:
        """Run `does` on rank 0, and block until it ends; its OSError is a DistError elsewhere."""
        failed: OSError | None = None
        if self.rank == 0:
            try:
                does()
            except OSError as error:
                failed = error
        flag = xp.asarray(np.array([failed is not None], np.int64), device=self.place)
        self.comm.broadcast(flag)
        if failed is not None:
            raise failed
        if flag.numpy()[0]:
            raise DistError("rank 0 could not write the file: see its error")
