"""Floor 5. Reductions of long arrays between processes: each rank adds up a slice of its own.

Pairwise exchange, as in "Optimization of Collective Communication Operations in MPICH" (Thakur,
Rabenseifner and Gropp, 2005). Every rank sends its slice r to rank r. Rank r combines the slices
and sends the result to the ranks that need it. Chunks of a long slice bound the memory.

True throughout:
- every element is combined in the order of ranks, for any length of slices and chunks;
- arrays are sent and received in place; only chunks of other ranks need memory in between;
- each wait ends at the deadline of the call, and memory that MPI may still use then is kept.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.distributed import mpi_library
from cudasync.distributed.resumable_calls import Steps, until_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.distributed.ranks import Ranks

# Arrays from this size on are long. MPI's own non-blocking reductions move all of an array to
# every rank.
LONG_BYTES = 256 << 10
# Long chunks: MPI copies a chunk in the thread that polls, so nothing overlaps within a rank, and a
# thread that holds the GIL may delay each call of MPI by milliseconds.
_MOST_BYTES = 8 << 20
# With many ranks a chunk is shorter, since a chunk of each rank is in memory.
_LEAST_OF_MANY_BYTES = 16 << 10
_PART, _RESULT = 0, 1
_UFUNCS = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


class Exchange:
    """The long reductions of one communicator, by messages that nothing else can receive."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.handle: Any = None
        self._memory = np.empty(0, np.uint8)

    def all_reduce(self, sent: Any, got: Any, op: str) -> Steps:
        """`sent` may be `got`."""
        ranks = self._ranks
        given, made = slices(sent, ranks.size), slices(got, ranks.size)
        results = {rank: made[rank] for rank in range(ranks.size) if rank != ranks.rank}
        yield from self._call(given, made[ranks.rank], op, results, list(results))

    def reduce(self, sent: Any, got: Any, op: str, root: int) -> Steps:
        """`sent` may be `got`, which is None on ranks other than the root."""
        ranks = self._ranks
        given = slices(sent, ranks.size)
        if got is None:
            own = np.empty_like(given[ranks.rank])
            yield from self._call(given, own, op, {}, [root])
            return
        made = slices(got, ranks.size)
        results = {rank: made[rank] for rank in range(ranks.size) if rank != root}
        yield from self._call(given, made[root], op, results, [])

    def reduce_scatter(self, sent: Any, got: Any, op: str) -> Steps:
        """`got` is the result of this rank's slice of `sent`, and shares no memory with it."""
        given = slices(sent, self._ranks.size)
        yield from self._call(given, got.reshape(-1), op, {}, [])

    def _call(
        self, given: list[Any], own: Any, op: str, results: dict[int, Any], hearers: list[int]
    ) -> Steps:
        if self.handle is None:
            # This is every rank's first call.
            handle, request = self._ranks.handle.Idup()
            yield from self._ranks.end([request], handle)
            self.handle = handle
        yield from _Call(self, given, own, op).run(results, hearers)

    def take(self, count: int, width: int, dtype: Any) -> Any:
        """Memory for `count` chunks, kept from call to call."""
        nbytes = count * width * dtype.itemsize
        if self._memory.size < nbytes:
            self._memory = np.empty(nbytes, np.uint8)
        return self._memory[:nbytes].view(dtype).reshape(count, width)


class _Call:
    """One reduction: this rank's part of each slice, and the target for its own slice's result."""

    def __init__(self, exchange: Exchange, given: Sequence[Any], own: Any, op: str) -> None:
        self._ranks: Ranks = exchange._ranks
        self._handle = exchange.handle
        rank, size = self._ranks.rank, self._ranks.size
        self._given, self._own, self._op = given, own, op
        # From the next rank on, so that the ranks do not all send to the same rank.
        self._others = [(rank + distance) % size for distance in range(1, size)]
        longest = max(each.size for each in given)
        self._width = width_of(longest * own.itemsize, size) // own.itemsize
        self._count = -(-longest // self._width)
        # Two sets of chunks: one set arrives while the other is combined.
        self._sets: int = min(2, self._count)
        self._arrived = exchange.take(self._sets * (size - 1), self._width, own.dtype)
        # Requests that may not be over.
        self._pending: list[list[Any]] = []

    def run(self, results: dict[int, Any], hearers: list[int]) -> Steps:
        """Combine this rank's slice, send the result to `hearers`, receive `results` by rank."""
        try:
            last = self._new()
            parts = self._start(0)
            for number in range(self._count):
                following = self._start(number + 1)
                yield from self._wait(parts[0])
                made = self._combined(number)
                last += [self._send(made, rank, _RESULT) for rank in hearers if made.size]
                # A result overwrites the chunk that this rank sends as its own part.
                yield from self._wait(parts[1])
                for rank, array in results.items():
                    chunk = self._chunk(array, number)
                    if chunk.size:
                        last.append(self._receive(chunk, rank, _RESULT))
                parts = following
            yield from self._wait(last)
        except BaseException:
            requests = [request for each in self._pending for request in each]
            if requests:
                used = self._given, self._own, results, self._arrived, self._handle
                mpi_library.LET_GO.append((requests, used))
            raise

    def _new(self) -> list[Any]:
        requests: list[Any] = []
        self._pending.append(requests)
        return requests

    def _start(self, number: int) -> tuple[list[Any], list[Any]]:
        """Start to receive and to send the parts of a chunk."""
        receives, sends = self._new(), self._new()
        length = self._chunk(self._own, number).size
        for place, rank in enumerate(self._others):
            if length:
                into = self._arrived[self._place(place, number)][:length]
                receives.append(self._receive(into, rank, _PART))
            chunk = self._chunk(self._given[rank], number)
            if chunk.size:
                sends.append(self._send(chunk, rank, _PART))
        return receives, sends

    def _combined(self, number: int) -> Any:
        """A chunk of this rank's slice, combined from all ranks' parts in the order of ranks."""
        rank, size = self._ranks.rank, self._ranks.size
        made = self._chunk(self._own, number)
        pieces = [self._chunk(self._given[rank], number)] * size
        for place, other in enumerate(self._others):
            pieces[other] = self._arrived[self._place(place, number)][: made.size]
        ufunc, now = _UFUNCS[self._op], pieces[0]
        with np.errstate(all="ignore"):
            for at in range(1, size):
                # `made` may be this rank's own piece, which must be read first. The other pieces
                # may be overwritten.
                into = made if rank < 2 or at == size - 1 else pieces[0]
                now = ufunc(now, pieces[at], out=into)
            if self._op == "mean":
                np.divide(made, size, out=made)
        return made

    def _place(self, place: int, number: int) -> int:
        return place + len(self._others) * (number % self._sets)

    def _chunk(self, array: Any, number: int) -> Any:
        return array[number * self._width : (number + 1) * self._width]

    def _send(self, chunk: Any, rank: int, tag: int) -> Any:
        return self._handle.Isend(mpi_library.as_bytes(chunk), dest=rank, tag=tag)

    def _receive(self, chunk: Any, rank: int, tag: int) -> Any:
        return self._handle.Irecv(mpi_library.as_bytes(chunk), source=rank, tag=tag)

    def _wait(self, requests: list[Any]) -> Steps:
        yield from until_over(requests)
        with suppress(ValueError):
            self._pending.remove(requests)


def width_of(slice_bytes: int, size: int) -> int:
    """The length of a chunk in bytes, the same on all ranks: the whole slice if possible."""
    most = max(_LEAST_OF_MANY_BYTES, _MOST_BYTES // (size - 1))
    return min(slice_bytes, most - most % 16)


def slices(array: Any, count: int) -> list[Any]:
    """`array`, contiguous, in `count` runs whose lengths differ by at most one."""
    flat = array.reshape(-1)
    bounds = [flat.size * number // count for number in range(count + 1)]
    return [flat[bounds[number] : bounds[number + 1]] for number in range(count)]
