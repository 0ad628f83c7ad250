"""Floor 5. The one place that meets mpi4py: its communicator, its dtypes, its requests.

Every call that may wait for another rank is started without blocking and polled, so that it ends at
a deadline. What moves without arithmetic moves as bytes.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cudasync.distributed.errors import BackendUnavailable, CollectiveTimeout, RankFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

# The name of a call, its number, and its seconds.
Limit: TypeAlias = tuple[str, int, float]
# Counts of MPI are C ints.
MOST = 2**31 - 1
# What MPI computes with, by NumPy's names; bool as bytes of 0 and 1.
_TYPES = {
    "int8": "INT8_T",
    "int16": "INT16_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
    "uint8": "UINT8_T",
    "uint16": "UINT16_T",
    "uint32": "UINT32_T",
    "uint64": "UINT64_T",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "bool": "UINT8_T",
}
_OPS = {"sum": "SUM", "mean": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_ASK = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version().splitlines()[0].split(",")[0].rstrip("\\0"))
"""
# A wait asks so often at once; then it sleeps between, longer and longer.
_BUSY_POLLS = 200
_LONGEST_SLEEP_S = 0.001


def library() -> Any:
    """The module `mpi4py.MPI`, which starts MPI when it is first loaded. BackendUnavailable where
    it is missing, or where MPI takes calls of one thread alone."""
    try:
        MPI = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailable("mpi", str(error), hint="pip install 'cudasync[mpi]'") from None
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise BackendUnavailable(
            "mpi",
            "this MPI was started without MPI_THREAD_MULTIPLE",
            hint="start it by cudasync, or ask for that level",
        )
    return MPI


def about() -> str:
    """Which MPI it is, asked without starting it; BackendUnavailable where there is none."""
    hint = "pip install 'cudasync[mpi]'"
    if importlib.util.find_spec("mpi4py") is None:
        raise BackendUnavailable("mpi", "mpi4py is not installed", hint=hint)
    # In a process of its own: one that has loaded it unstarted could not use it.
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=60, check=False
    )
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        raise BackendUnavailable("mpi", last, hint=f"load this machine's MPI, or {hint}")
    return asked.stdout.strip()


class Ranks:
    """A communicator of MPI that is ours alone, and the calls of one thread on it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.rank = int(handle.rank)
        self.size = int(handle.size)
        # Requests of sends, with the bytes that they send: they end while others are polled.
        self._sending: list[tuple[Any, Any]] = []
        # What MPI may still write to after a deadline.
        self._let_go: list[Any] = []

    def all_reduce(self, sent: Any, got: Any, op: str, limit: Limit) -> None:
        """`sent` may be `got`."""
        MPI = library()
        first = MPI.IN_PLACE if sent is got else _numbers(sent)
        self._end(self.handle.Iallreduce(first, _numbers(got), _op(op)), (sent, got), limit)

    def reduce(self, sent: Any, got: Any, op: str, root: int, limit: Limit) -> None:
        into = None if got is None else _numbers(got)
        self._end(self.handle.Ireduce(_numbers(sent), into, _op(op), root=root), (sent, got), limit)

    def reduce_scatter(self, sent: Any, got: Any, op: str, limit: Limit) -> None:
        request = self.handle.Ireduce_scatter_block(_numbers(sent), _numbers(got), _op(op))
        self._end(request, (sent, got), limit)

    def broadcast(self, x: Any, root: int, limit: Limit) -> None:
        self._end(self.handle.Ibcast(_bytes(x), root=root), x, limit)

    def all_gather(self, sent: Any, got: Any, limit: Limit) -> None:
        self._end(self.handle.Iallgather(_bytes(sent), _bytes(got)), (sent, got), limit)

    def gather(self, sent: Any, got: Any, root: int, limit: Limit) -> None:
        into = None if got is None else _bytes(got)
        self._end(self.handle.Igather(_bytes(sent), into, root=root), (sent, got), limit)

    def scatter(self, sent: Any, got: Any, root: int, limit: Limit) -> None:
        out_of = None if sent is None else _bytes(sent)
        self._end(self.handle.Iscatter(out_of, _bytes(got), root=root), (sent, got), limit)

    def all_to_all(self, sent: Any, got: Any, limit: Limit) -> None:
        self._end(self.handle.Ialltoall(_bytes(sent), _bytes(got)), (sent, got), limit)

    def send(self, sent: Any, to: int, left: int = 0) -> None:
        """Start to send bytes that nobody else has; `flush` waits for the end. `left` parts of the
        same array follow."""
        self._sending.append((self.handle.Isend(_bytes(sent), dest=to, tag=left), sent))
        self._ended_sends()

    def receive(self, got: Any, source: int, limit: Limit, left: int = 0) -> None:
        """Receive as many bytes as `got` has, and know that `left` parts follow; ValueError for
        another number of either."""
        MPI = library()
        status = MPI.Status()
        request = self.handle.Irecv(_bytes(got), source=source, tag=MPI.ANY_TAG)
        self._end(request, got, limit, status)
        came, more = status.Get_count(MPI.BYTE), status.Get_tag()
        if (came, more) != (got.nbytes, left):
            parts = f" and {more} more parts" if more != left else ""
            raise ValueError(
                f"rank {source} sent {came} bytes{parts} where {got.nbytes} are received: the "
                f"arrays differ in size"
            )

    def tell(self, to: int, message: bytes) -> None:
        """Start to send a message."""
        self.send(np.frombuffer(message, np.uint8), to)

    def hear(self, source: int, limit: Limit) -> bytes:
        """The next message from there; CollectiveTimeout names it."""
        MPI = library()
        status = MPI.Status()

        def came() -> bool:
            return bool(self.handle.Iprobe(source=source, tag=MPI.ANY_TAG, status=status))

        if not self._wait(came, limit):
            raise CollectiveTimeout(*limit, rank=source)
        message = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        self.handle.Recv(_bytes(message), source=source, tag=status.Get_tag())
        return message.tobytes()

    def any(self, flags: list[bool], limit: Limit) -> list[bool]:
        """For each flag whether some rank has set it."""
        found = np.array(flags, np.uint8)
        self.all_reduce(found, found, "max", limit)
        return [bool(each) for each in found]

    def duplicate(self) -> Ranks:
        """The same ranks, apart from what they say here. All ranks call it, and are here."""
        return Ranks(self.handle.Dup())

    def barrier(self, limit: Limit) -> None:
        self._end(self.handle.Ibarrier(), None, limit)

    def flush(self, limit: Limit) -> None:
        """Wait until all that was sent is on its way."""
        while self._sending:
            request, sent = self._sending[0]
            self._end(request, sent, limit)
            del self._sending[0]

    def split(self, color: Hashable, key: Any, limit: Limit) -> Ranks | None:
        """The ranks with one color, by key; None for the color None. Blocks until all are here."""
        MPI = library()
        # What follows has no deadline, and is soon over where all are here.
        self.barrier(limit)
        rows = self.handle.allgather((color, key))
        if color is None:
            self.handle.Split(MPI.UNDEFINED, 0)
            return None
        order = [r for _, r in sorted((k, r) for r, (c, k) in enumerate(rows) if c == color)]
        number = [c for c, _ in rows].index(color)
        return Ranks(self.handle.Split(number, order.index(self.rank)))

    def _end(self, request: Any, used: Any, limit: Limit, status: Any = None) -> None:
        """Wait for a request, whose bytes are `used`; CollectiveTimeout at its deadline."""
        try:
            if not self._wait(lambda: request.Test(status), limit):
                raise CollectiveTimeout(*limit)
        except Exception:
            self._let_go.append((request, used))
            raise

    def _wait(self, is_over: Callable[[], Any], limit: Limit) -> bool:
        """Ask until it is so; False at the deadline, RankFailed where a rank is dead."""
        start, polls, pause = time.monotonic(), 0, 1e-5
        while True:
            try:
                if is_over():
                    return True
            except library().Exception as error:
                raise self._told(error, limit) from None
            polls += 1
            self._ended_sends()
            if polls < _BUSY_POLLS:
                time.sleep(0)
                continue
            if time.monotonic() - start > limit[2]:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_SLEEP_S)

    def _told(self, error: Any, limit: Limit) -> Exception:
        """What MPI's error is to callers. (User Level Failure Mitigation, where it is on)"""
        MPI = library()
        dead = {
            getattr(MPI, name, None)
            for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
        }
        if error.Get_error_class() not in dead:
            return error  # type: ignore[no-any-return]
        # Ranks that wait for others than the dead one hear of it, too.
        self.handle.Revoke()
        ranks = self.handle.Get_failed().Translate_ranks(None, self.handle.Get_group())
        return RankFailed(limit[0], sorted(ranks), str(error))

    def _ended_sends(self) -> None:
        self._sending = [each for each in self._sending if not each[0].Test()]


def world(seconds: float) -> Ranks:
    """All ranks, in a communicator of its own. Blocks until all are here; CollectiveTimeout."""
    first = Ranks(library().COMM_WORLD)
    first.barrier(("init", 0, seconds))
    return first.duplicate()


def number_on_this_machine() -> int:
    """Which one this rank is among those that share its memory, from 0."""
    MPI = library()
    near = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    found = int(near.rank)
    near.Free()
    return found


def raise_unless_it_computes(dtype: np.dtype[Any]) -> None:
    """TypeError for a dtype that no reduction of MPI takes."""
    if dtype.name not in _TYPES:
        raise TypeError(f"MPI does not compute with {dtype}: it takes {', '.join(_TYPES)}")


def _op(name: str) -> Any:
    return getattr(library(), _OPS[name])


def _numbers(x: Any) -> list[Any]:
    plain = x.view(np.uint8) if x.dtype == np.bool_ else x
    return [plain, getattr(library(), _TYPES[x.dtype.name])]


def _bytes(x: Any) -> list[Any]:
    return [x.reshape(-1).view(np.uint8), library().BYTE]
