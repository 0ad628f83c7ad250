"""Floor 5. Debug mode between processes: ranks compare their calls before each collective.

A rank tells all other ranks its next call, and hears theirs. A send tells its receiver alone, and
nothing waits for this message. So a rank may hear of sends between two collectives; it keeps them
for their recv. A recv that hears of a collective instead would wait for ever, so it raises. This
communicator carries nothing else, so messages arrive in the order of calls.
"""

from __future__ import annotations

import json
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.distributed.errors import CollectiveMismatch

if TYPE_CHECKING:
    from types import FrameType

    import numpy as np

    from cudasync.distributed.mpi_library import Limit
    from cudasync.distributed.ranks import Ranks
    from cudasync.distributed.resumable_calls import Steps


class Told(NamedTuple):
    """The description of a call that ranks compare.

    `what` must be equal on all ranks. A send and its recv must have equal shape and dtype. A call
    without a name is not compared.
    """

    call: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    root: int | None = None
    to: int | None = None
    source: int | None = None
    site: str = ""

    def at(self, frame: FrameType) -> Told:
        """The same call, with the line that pushed it."""
        return self._replace(site=f"{frame.f_code.co_filename}:{frame.f_lineno}")

    @property
    def what(self) -> tuple[Any, ...]:
        """The values that must be equal on all ranks."""
        return self.call, self.shape, self.dtype, self.root

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" of {self.dtype} {self.shape}"
        root = "" if self.root is None else f", root {self.root}"
        return f"{self.call}{shape}{root}, pushed at {self.site}"

    def encoded(self) -> bytes:
        """The call as a message."""
        return json.dumps(self).encode()

    @classmethod
    def decoded(cls, message: bytes) -> Told:
        """The call that a message describes."""
        call, shape, *rest = json.loads(message)
        return cls(call, None if shape is None else tuple(shape), *rest)


def told_of(
    call: str, x: Any, *, root: int | None = None, to: int | None = None, source: int | None = None
) -> Told:
    """The description of a call with the array `x`."""
    return Told(call, x.shape, _name_of(x.dtype), root, to, source)


@cache
def _name_of(dtype: np.dtype[Any]) -> str:
    # Cached, because NumPy builds the name again each time.
    return str(dtype)


class Comparing:
    """One rank's side of the comparison, on an MPI communicator of its own."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        # By sender: sends to this rank that were heard of and not received yet.
        self._sends: dict[int, deque[Told]] = {r: deque() for r in range(ranks.size)}

    def compare(self, own: Told, limit: Limit) -> Steps:
        """End once all ranks, or the sender, make a matching call; else CollectiveMismatch."""
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
        # The other ranks hear of the mismatch at their next call, instead of waiting for ours.
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
