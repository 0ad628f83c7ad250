"""Floor 5. Reductions of long arrays between processes, as messages between pairs of ranks.

A pairwise exchange: rank r receives slice r of all other ranks, combines the slices, and sends the
result to the ranks that need it. A slice travels in chunks, which are combined while the
processor's cache has them.

True throughout:
- every element is combined in the order of ranks, for any length of slices and chunks;
- arrays are sent and received in place; only chunks of other ranks need memory in between;
- each wait ends at the deadline of the call, and memory that MPI may still use then is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.distributed import mpi_library
from cudasync.distributed.resumable_calls import Steps, until_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.distributed.ranks import Ranks

# Arrays from this size on are long. MPI's own non-blocking reductions move all of an array to
# every rank.
LONG_BYTES = 256 << 10
# The chunks of all other ranks together: MPI copies a chunk in the thread that polls, and the
# arithmetic finds it in the processor's caches. Half of this would take twice the steps in Python.
_MOST_BYTES = 1 << 20
# With many ranks a shorter chunk would cost more calls than it saves.
_LEAST_OF_MANY_BYTES = 16 << 10
# So many chunks are offered to the other ranks before this rank combines them.
_AHEAD = 16
_PART, _RESULT = 0, 1
_UFUNCS = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
# MPI's arithmetic has the same bits. Its min and max treat NaN differently.
_MPI_COMBINES = {"sum", "mean", "prod"}


class Exchange:
    """The long reductions of one communicator, by messages that nothing else can receive.

    `handle` is MPI's communicator of these messages. It exists before the first call: if a rank
    made it while another one, whose array is short, reduces by MPI, MPI would take one for the
    other and crash.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.handle: Any = None
        self._memory = np.empty(0, np.uint8)

    def all_reduce(self, sent: Any, got: Any, op: str) -> Steps:
        """`sent` may be `got`."""
        ranks = self._ranks
        made = slices(got, ranks.size)
        given = made if sent is got else slices(sent, ranks.size)
        results = {rank: made[rank] for rank in range(ranks.size) if rank != ranks.rank}
        return self._call(given, made[ranks.rank], got.dtype, op, results, list(results))

    def reduce(self, sent: Any, got: Any, op: str, root: int) -> Steps:
        """`sent` may be `got`, which is None on ranks other than the root."""
        ranks = self._ranks
        given = slices(sent, ranks.size)
        if got is None:
            own = np.empty_like(given[ranks.rank])
            return self._call(given, own, sent.dtype, op, {}, [root])
        made = given if sent is got else slices(got, ranks.size)
        results = {rank: made[rank] for rank in range(ranks.size) if rank != root}
        return self._call(given, made[root], got.dtype, op, results, [])

    def reduce_scatter(self, sent: Any, got: Any, op: str) -> Steps:
        """`got` is the result of this rank's slice of `sent`, and shares no memory with it."""
        given = slices(sent, self._ranks.size)
        return self._call(given, slices(got, 1)[0], got.dtype, op, {}, [])

    def _call(
        self,
        given: list[Any],
        own: Any,
        dtype: np.dtype[Any],
        op: str,
        results: dict[int, Any],
        hearers: list[int],
    ) -> Steps:
        assert self.handle is not None, "these ranks were not opened for long reductions"
        return _Call(self, given, own, dtype, op).run(results, hearers)

    def take(self, count: int, width: int) -> list[Any]:
        """Memory for `count` chunks, kept from call to call."""
        if self._memory.size < count * width:
            self._memory = np.empty(count * width, np.uint8)
        return [self._memory[at * width : (at + 1) * width] for at in range(count)]


class _Call:
    """One reduction, on bytes: this rank's part of each slice, and the target for the result of
    its own slice, which may be this rank's part of that slice."""

    def __init__(
        self, exchange: Exchange, given: list[Any], own: Any, dtype: np.dtype[Any], op: str
    ) -> None:
        ranks = exchange._ranks
        self._handle = exchange.handle
        self._rank, size = ranks.rank, ranks.size
        self._given, self._own, self._dtype, self._op = given, own, dtype, op
        # From the next rank on, so that the ranks do not all send to the same rank.
        self._others = [(ranks.rank + distance) % size for distance in range(1, size)]
        longest = max(map(len, given))
        self._width = width_of(longest, size)
        self._count = -(-longest // self._width)
        self._arrived = exchange.take(size - 1, self._width)
        self._byte, self._number = mpi_library.library().BYTE, mpi_library.type_of(dtype)
        # NumPy's sum takes twice as long in memory that another rank has just read.
        self._mpi = mpi_library.reduction(op) if op in _MPI_COMBINES else None
        # All requests. MPI calls a request over if its end has been seen before.
        self._started: list[Any] = []

    def run(self, results: dict[int, Any], hearers: list[int]) -> Steps:
        """Combine this rank's slice, send the result to `hearers`, receive `results` by rank."""
        sends: list[list[Any]] = []
        send, receive = self._handle.Isend, self._handle.Irecv
        try:
            for number in range(self._count):
                length = len(self._chunk(self._own, number))
                # Before the sends: a chunk that is expected is received without a detour.
                parts = [
                    self._start(receive, into[:length], rank, _PART)
                    for into, rank in zip(self._arrived, self._others, strict=True)
                    if length
                ]
                for ahead in range(len(sends), min(self._count, number + _AHEAD)):
                    sent = ((self._chunk(self._given[rank], ahead), rank) for rank in self._others)
                    sends.append([self._start(send, x, rank, _PART) for x, rank in sent if len(x)])
                if not length:
                    continue
                yield from until_over(parts)
                made = self._combined(number)
                for rank in hearers:
                    self._start(send, made, rank, _RESULT)
            for number, parts_sent in enumerate(sends):
                # A result overwrites the chunk that this rank sends as its own part.
                yield from until_over(parts_sent)
                for rank, array in results.items():
                    chunk = self._chunk(array, number)
                    if len(chunk):
                        self._start(receive, chunk, rank, _RESULT)
            yield from until_over(self._started)
        except BaseException:
            if self._started:
                used = self._given, self._own, results, self._arrived, self._handle
                mpi_library.LET_GO.append((self._started, used))
            raise

    def _start(self, call: Callable[..., Any], chunk: Any, rank: int, tag: int) -> Any:
        request = call([chunk, self._byte], rank, tag)
        self._started.append(request)
        return request

    def _combined(self, number: int) -> Any:
        """A chunk of this rank's slice, combined from all ranks' parts in the order of ranks."""
        made = self._chunk(self._own, number)
        given = self._given[self._rank]
        pieces = [made if given is self._own else self._chunk(given, number)] * len(self._given)
        for into, other in zip(self._arrived, self._others, strict=True):
            pieces[other] = into[: len(made)]
        now = pieces[0]
        for at in range(1, len(pieces)):
            # `made` may be this rank's own piece, which must be read first. The other pieces may
            # be overwritten.
            now = self._combine(now, pieces[at], made if at >= self._rank else pieces[0])
        if self._op == "mean":
            made_numbers = made.view(self._dtype)
            np.divide(made_numbers, len(pieces), out=made_numbers)
        return made

    def _combine(self, x: Any, y: Any, into: Any) -> Any:
        if self._mpi is not None and (into is x or into is y):
            other = y if into is x else x
            self._mpi.Reduce_local([other, self._number], [into, self._number])
            return into
        with np.errstate(all="ignore"):
            numbers, more, out = (each.view(self._dtype) for each in (x, y, into))
            _UFUNCS[self._op](numbers, more, out=out)
        return into

    def _chunk(self, array: Any, number: int) -> Any:
        return array[number * self._width : (number + 1) * self._width]


def width_of(slice_bytes: int, size: int) -> int:
    """The length of a chunk in bytes, the same on all ranks: the whole slice if possible."""
    most = max(_LEAST_OF_MANY_BYTES, _MOST_BYTES // (size - 1))
    return min(slice_bytes, most - most % 16)


def slices(array: Any, count: int) -> list[Any]:
    """The bytes of `array`, contiguous, in `count` runs whose lengths differ by at most one
    element."""
    flat, width = array.reshape(-1).view(np.uint8), array.dtype.itemsize
    bounds = [array.size * number // count * width for number in range(count + 1)]
    return [flat[bounds[number] : bounds[number + 1]] for number in range(count)]
