"""Floor 5. Debug mode between processes: each rank's next call is compared with the others' first.

A rank tells all others what it is about to call, and hears what they are. A send tells its
receiver alone, and is not waited for, so what ranks hear between two collectives may be sends: they
are kept for their recv. A recv that hears of a collective instead waits for ever, and says so.
Nothing else travels on this communicator, so what is heard comes in the order of calls.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.distributed.errors import CollectiveMismatch

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.distributed.mpi_library import Limit
    from cudasync.distributed.ranks import Ranks
    from cudasync.distributed.walk import Steps


class Told(NamedTuple):
    """What is compared of a call. `what` is equal on all ranks, of a send and its recv the shape
    and dtype are. A call without a name is not compared."""

    call: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    root: int | None = None
    to: int | None = None
    source: int | None = None
    site: str = ""

    def at(self, frame: FrameType) -> Told:
        """The same, pushed there."""
        return self._replace(site=f"{frame.f_code.co_filename}:{frame.f_lineno}")

    @property
    def what(self) -> tuple[Any, ...]:
        """What is the same on all ranks."""
        return self.call, self.shape, self.dtype, self.root

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" of {self.dtype} {self.shape}"
        root = "" if self.root is None else f", root {self.root}"
        return f"{self.call}{shape}{root}, pushed at {self.site}"

    def encoded(self) -> bytes:
        """As a message."""
        return json.dumps(self).encode()

    @classmethod
    def decoded(cls, message: bytes) -> Told:
        """What a message says."""
        call, shape, *rest = json.loads(message)
        return cls(call, None if shape is None else tuple(shape), *rest)


class Comparing:
    """The side of one rank, on a communicator of MPI's that carries nothing else."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        # By sender: what it sends us, as far as we have heard and not received it.
        self._sends: dict[int, deque[Told]] = {r: deque() for r in range(ranks.size)}

    def compare(self, own: Told, limit: Limit) -> Steps:
        """End once all ranks, or the sender, call what fits; CollectiveMismatch otherwise."""
        if own.to is not None:
            self._ranks.tell(own.to, own.encoded())
        elif own.source is not None:
            yield from self._compare_with_sender(own, own.source, limit)
        else:
            self._tell_all(own)
            calls = [own] * self._ranks.size
            for rank in range(self._ranks.size):
                if rank != self._ranks.rank:
                    calls[rank] = yield from self._next_collective(rank, limit)
            if any(each.what != own.what for each in calls):
                raise CollectiveMismatch([str(each) for each in calls])

    def _compare_with_sender(self, own: Told, source: int, limit: Limit) -> Steps:
        waiting = self._sends[source]
        found = waiting.popleft() if waiting else (yield from self._hear(source, limit))
        if found.to is not None and (found.shape, found.dtype) == (own.shape, own.dtype):
            return
        # The others are to hear of it at their next call, not to wait for ours.
        self._tell_all(own)
        calls = ["not asked"] * self._ranks.size
        calls[source], calls[self._ranks.rank] = str(found), str(own)
        raise CollectiveMismatch(calls)

    def _next_collective(self, rank: int, limit: Limit) -> Steps:
        while (found := (yield from self._hear(rank, limit))).to is not None:
            self._sends[rank].append(found)
        return found

    def _hear(self, rank: int, limit: Limit) -> Steps:
        message = yield from self._ranks.hear(rank, limit)
        return Told.decoded(message)

    def _tell_all(self, own: Told) -> None:
        message = own.encoded()
        for rank in range(self._ranks.size):
            if rank != self._ranks.rank:
                self._ranks.tell(rank, message)
