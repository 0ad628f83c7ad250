"""Floor 5. An mpi4py communicator as one rank uses it: collectives, messages, the end of both.

Every call that may wait for another rank starts without blocking and is polled, so that it ends at
a deadline. Calls without arithmetic move bytes.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.distributed.errors import BackendUnavailable, CollectiveTimeout, RankFailed
from cudasync.distributed.mpi_library import (
    DEAD,
    LET_GO,
    ORDERED,
    TOLERANT,
    as_bytes,
    as_numbers,
    end_what_was_let_go,
    library,
    ordered_keys,
    reduction,
    start,
    take_values,
)
from cudasync.distributed.pairwise_exchange import LONG_BYTES, Exchange
from cudasync.distributed.resumable_calls import Steps, Walk, until_over
from cudasync.engine import current

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cudasync.distributed.mpi_library import Limit

# A rank that hears of a dead rank waits up to this long to learn which rank died.
_HEARSAY_S = 2.0
# A wait first polls for this long without a pause, as MPI's own waits do for ever. Then it yields
# the processor between polls, and then it sleeps, longer and longer.
_SPIN_S = 300e-6
_YIELD_S = 2e-3
_LONGEST_SLEEP_S = 0.001
# From here on floats take longer to become integers of their order than an exchange takes.
_LONG_KEYS_BYTES = 16 << 10
# After this long another rank may be in another lane: another thread runs what is ready here.
_ALONE_S = _YIELD_S


class Ranks:
    """A communicator of MPI that is ours alone, and the calls of one thread on it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.rank = int(handle.rank)
        self.size = int(handle.size)
        # Requests of sends, with their bytes: they end while other requests are polled.
        self._sending: list[tuple[Any, Any]] = []
        # For reductions of long arrays: MPI has no fast non-blocking call for them.
        self._exchange = Exchange(self)
        # These ranks and their lanes. A lane's waits let the worker run the calls of other lanes.
        self._together: list[Ranks] = [self]
        self._is_lane = False

    def all_reduce(self, sent: Any, got: Any, op: str) -> Steps:
        """`sent` may be `got`."""
        if self._is_long(got, op):
            return self._exchange.all_reduce(sent, got, op)
        if op in ORDERED and got.dtype.kind == "f":
            return self._by_keys(self._all_reduce, sent, got, op)
        return self._all_reduce(sent, got, op)

    def _all_reduce(self, sent: Any, got: Any, op: str) -> Steps:
        MPI = library()
        first = MPI.IN_PLACE if sent is got else as_numbers(sent)
        request = self.handle.Iallreduce(first, as_numbers(got), reduction(op))
        yield from self.end([request], (sent, got))
        self._mean(got, op)

    def reduce(self, sent: Any, got: Any, op: str, root: int) -> Steps:
        """`sent` may be `got`, which is None on ranks other than the root."""
        if self._is_long(sent, op):
            return self._exchange.reduce(sent, got, op, root)
        if op in ORDERED and sent.dtype.kind == "f":
            return self._by_keys(self._reduce, sent, got, op, root)
        return self._reduce(sent, got, op, root)

    def _reduce(self, sent: Any, got: Any, op: str, root: int) -> Steps:
        into = None if got is None else as_numbers(got)
        first = as_numbers(sent.copy() if sent is got else sent)
        yield from self.end(
            [self.handle.Ireduce(first, into, reduction(op), root=root)], (first, got)
        )
        if got is not None:
            self._mean(got, op)

    def reduce_scatter(self, sent: Any, got: Any, op: str) -> Steps:
        if self._is_long(sent, op):
            return self._exchange.reduce_scatter(sent, got, op)
        if op in ORDERED and got.dtype.kind == "f":
            return self._by_keys(self._reduce_scatter, sent, got, op)
        return self._reduce_scatter(sent, got, op)

    def _reduce_scatter(self, sent: Any, got: Any, op: str) -> Steps:
        request = self.handle.Ireduce_scatter_block(
            as_numbers(sent), as_numbers(got), reduction(op)
        )
        yield from self.end([request], (sent, got))
        self._mean(got, op)

    def _by_keys(
        self, reduce: Callable[..., Steps], sent: Any, got: Any, op: str, *root: int
    ) -> Steps:
        """Reduce floats by `min` or `max` as integers of their order.

        MPI leaves open whether NaN, or which of two zeros, is the result; it may depend on the
        rank.
        """
        keys = ordered_keys(sent, op)
        # `sent` and `got` of an all_reduce may be one array, and so may their keys.
        is_one = got is not None and got.size == sent.size and not root
        found = keys if is_one else None if got is None else np.empty(got.size, keys.dtype)
        yield from reduce(keys, found, op, *root)
        if got is not None:
            take_values(found, got)

    def _is_long(self, x: Any, op: str) -> bool:
        if x.nbytes < LONG_BYTES and not (
            op in ORDERED and x.nbytes >= _LONG_KEYS_BYTES and x.dtype.kind == "f"
        ):
            return False
        return self.size > 1

    def _mean(self, got: Any, op: str) -> None:
        if op == "mean":
            np.divide(got, self.size, out=got)

    def broadcast(self, x: Any, root: int) -> Steps:
        yield from self.end([self.handle.Ibcast(as_bytes(x), root=root)], x)

    def all_gather(self, sent: Any, got: Any) -> Steps:
        yield from self.end([self.handle.Iallgather(as_bytes(sent), as_bytes(got))], (sent, got))

    def gather(self, sent: Any, got: Any, root: int) -> Steps:
        into = None if got is None else as_bytes(got)
        yield from self.end([self.handle.Igather(as_bytes(sent), into, root=root)], (sent, got))

    def scatter(self, sent: Any, got: Any, root: int) -> Steps:
        out_of = None if sent is None else as_bytes(sent)
        yield from self.end([self.handle.Iscatter(out_of, as_bytes(got), root=root)], (sent, got))

    def all_to_all(self, sent: Any, got: Any) -> Steps:
        yield from self.end([self.handle.Ialltoall(as_bytes(sent), as_bytes(got))], (sent, got))

    def send(self, sent: Any, to: int, left: int = 0) -> None:
        """Start to send bytes that the caller will not change; `flush` waits for the end.

        `left` parts of the same array follow.
        """
        self._sending.append((self.handle.Isend(as_bytes(sent), dest=to, tag=left), sent))
        self._ended_sends()

    def receive(self, got: Any, source: int, left: int = 0) -> Steps:
        """Receive the bytes of `got`, of which `left` parts follow.

        ValueError if the sender has another number of bytes or parts.
        """
        MPI = library()
        status = MPI.Status()
        request = self.handle.Irecv(as_bytes(got), source=source, tag=MPI.ANY_TAG)
        yield from self.end([request], got, status)
        came, more = status.Get_count(MPI.BYTE), status.Get_tag()
        if (came, more) != (got.nbytes, left):
            parts = f" and {more} more parts" if more != left else ""
            raise ValueError(
                f"rank {source} sent {came} bytes{parts}, and {got.nbytes} bytes are expected: "
                f"give arrays of equal size"
            )

    def tell(self, to: int, message: bytes) -> None:
        """Start to send a message."""
        self.send(np.frombuffer(message, np.uint8), to)

    def hear(self, source: int, limit: Limit) -> Steps:
        """The steps return the next message from `source`; CollectiveTimeout names this rank."""
        MPI = library()
        status = MPI.Status()

        def came() -> bool:
            return bool(self.handle.Iprobe(source=source, tag=MPI.ANY_TAG, status=status))

        try:
            while not came():
                yield came
        except CollectiveTimeout:
            raise CollectiveTimeout(*limit, rank=source) from None
        message = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        self.handle.Recv(as_bytes(message), source=source, tag=status.Get_tag())
        return message.tobytes()

    def any(self, flags: list[bool], limit: Limit) -> list[bool]:
        """For each flag, whether any rank has set it."""
        found = np.array(flags, np.uint8)
        self.run(self.all_reduce(found, found, "max"), limit)
        return [bool(each) for each in found]

    def duplicate(self) -> Ranks:
        """The same ranks with messages of their own. All ranks call it at the same time."""
        return Ranks(self.handle.Dup())

    def lanes(self, count: int) -> Steps:
        """The steps return the same ranks `count` times, each with messages of its own.

        One duplication ends before the next begins: Open MPI 5.0 mixes up several at a time.
        """
        made = []
        for _ in range(count):
            handle, request = self.handle.Idup()
            yield from self.end([request], handle)
            made.append(Ranks(handle))
        for each in made:
            each._is_lane, each._together = True, self._together
            # No other message of a lane is one of its exchange's.
            each._exchange.handle = each.handle
        self._together += made
        return made

    def open_exchange(self) -> None:
        """Make the communicator of long reductions. All ranks call it at the same time."""
        self._exchange.handle = self.handle.Dup()

    def barrier(self) -> Steps:
        yield from self.end([self.handle.Ibarrier()], None)

    def flush(self) -> Steps:
        """Wait until MPI has taken all sent bytes."""

        def are_taken() -> bool:
            self._ended_sends()
            return not self._sending

        while not are_taken():
            yield are_taken

    def split(self, color: Hashable, key: Any) -> Steps:
        """The steps return the ranks with one color, by key; None for the color None."""
        MPI = library()
        # The calls below have no deadline, but end soon once all ranks are here.
        yield from self.barrier()
        rows = self.handle.allgather((color, key))
        if color is None:
            self.handle.Split(MPI.UNDEFINED, 0)
            return None
        order = [r for _, r in sorted((k, r) for r, (c, k) in enumerate(rows) if c == color)]
        number = [c for c, _ in rows].index(color)
        return Ranks(self.handle.Split(number, order.index(self.rank)))

    def shrink(self, limit: Limit) -> Ranks:
        """The ranks that are alive; all of these call it. BackendUnavailable without ULFM."""
        if os.environ.get(TOLERANT) != "1":
            raise BackendUnavailable(
                "mpi",
                "this run cannot continue without a rank",
                hint="start it with cudasync launch --fault-tolerant, with Open MPI 5",
            )
        made: list[Any] = []

        def shrink() -> None:
            self._revoke()
            made.append(self.handle.Shrink())

        # Open MPI 5.0's Ishrink, which has a request to poll, fails on a revoked communicator.
        if not _in_time(shrink, limit[2]):
            raise CollectiveTimeout(*limit)
        return Ranks(made[0])

    def end(self, requests: list[Any], used: Any, status: Any = None) -> Steps:
        """Wait for requests that use the memory `used`."""
        try:
            yield from until_over(requests, status)
        except BaseException:
            LET_GO.append((requests, used))
            raise

    def run(self, steps: Steps, limit: Limit) -> Any:
        """Take all steps of a call and return their result; CollectiveTimeout."""
        return Walk(steps, limit).go_on(self)

    def poll(self, is_over: Callable[[], Any], until: float) -> bool:
        """Call `is_over` until it is true; False at the deadline, by `time.monotonic`."""
        if is_over():
            return True
        if not self._is_lane:
            return self._polled(is_over, until)
        if self._polled(is_over, min(until, time.monotonic() + _ALONE_S)):
            return True
        worker = current.worker()
        with nullcontext() if worker is None else worker.pool.blocked(worker):
            return self._polled(is_over, until)

    def _polled(self, is_over: Callable[[], Any], until: float) -> bool:
        start, pause = time.monotonic(), 1e-5
        while not is_over():
            if self._sending or LET_GO:
                self._ended_sends()
            waited = time.monotonic() - start
            if waited < _SPIN_S:
                continue
            if start + waited > until:
                return False
            time.sleep(0 if waited < _YIELD_S else pause)
            if waited > _YIELD_S:
                pause = min(2 * pause, _LONGEST_SLEEP_S)
        return True

    def known(self, error: BaseException, limit: Limit) -> BaseException:
        """RankFailed for MPI's errors about dead ranks; any other error unchanged.

        MPI reports dead ranks only with User Level Failure Mitigation.
        """
        MPI = library()
        if not isinstance(error, MPI.Exception):
            return error
        dead = {
            getattr(MPI, name, None)
            for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
        }
        known: BaseException = error
        if error.Get_error_class() not in dead:
            return known
        # So that ranks that do not wait for the dead rank hear of its death, too.
        self._revoke()
        found = self._dead()
        DEAD.update(found)
        return RankFailed(limit[0], found, str(error))

    def _revoke(self) -> None:
        for each in self._together:
            each.handle.Revoke()
            if each._exchange.handle not in (None, each.handle):
                each._exchange.handle.Revoke()

    def _dead(self) -> list[int]:
        """The known dead ranks. A rank that only heard of a death learns the number a bit later."""
        end = time.monotonic() + _HEARSAY_S
        while True:
            failed = self.handle.Get_failed()
            if failed.size or time.monotonic() > end:
                return sorted(failed.Translate_ranks(None, self.handle.Get_group()))
            # A probe makes MPI process messages that have arrived. On our own communicator, which
            # is revoked, it would not.
            library().COMM_SELF.Iprobe()
            time.sleep(_LONGEST_SLEEP_S)

    def _ended_sends(self) -> None:
        self._sending = [each for each in self._sending if not each[0].Test()]
        if LET_GO:
            end_what_was_let_go()


def _in_time(call: Callable[[], None], seconds: float) -> bool:
    """Make an MPI call without a deadline of its own; False if it still runs after `seconds`."""
    thread = threading.Thread(target=call, name="cudasync mpi", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def world(seconds: float) -> Ranks:
    """All ranks, in a new communicator. Blocks until all ranks are here; CollectiveTimeout."""
    limit = "init", 0, seconds
    start(limit)
    first = Ranks(library().COMM_WORLD)
    first.run(first.barrier(), limit)
    return first.duplicate()
