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
    from collections.abc import Hashable

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

    def send(self, sent: Any, to: int) -> None:
        """Start to send bytes that nobody else has; `flush` waits for the end."""
        self._sending.append((self.handle.Isend(_bytes(sent), dest=to), sent))
        self._ended_sends()

    def receive(self, got: Any, source: int, limit: Limit) -> None:
        """Receive as many bytes as `got` has; ValueError for another number."""
        MPI = library()
        status = MPI.Status()
        self._end(self.handle.Irecv(_bytes(got), source=source), got, limit, status)
        came = status.Get_count(MPI.BYTE)
        if came != got.nbytes:
            raise ValueError(f"rank {source} sent {came} bytes where {got.nbytes} are received")

    def barrier(self, limit: Limit) -> None:
        self._end(self.handle.Ibarrier(), None, limit)

    def flush(self, limit: Limit) -> None:
        """Wait until all that was sent is on its way."""
        while self._sending:
            request, sent = self._sending[0]
            self._end(request, sent, limit)
            del self._sending[0]

    def split(self, color: Hashable, key: Any) -> Ranks | None:
        """The ranks with one color, by key; None for the color None. Blocks until all are here."""
        MPI = library()
        rows = self.handle.allgather((color, key))
        if color is None:
            self.handle.Split(MPI.UNDEFINED, 0)
            return None
        order = [r for _, r in sorted((k, r) for r, (c, k) in enumerate(rows) if c == color)]
        number = [c for c, _ in rows].index(color)
        return Ranks(self.handle.Split(number, order.index(self.rank)))

    def _end(self, request: Any, used: Any, limit: Limit, status: Any = None) -> None:
        """Wait for a request, whose bytes are `used`; CollectiveTimeout at its deadline."""
        name, number, seconds = limit
        MPI = library()
        start, polls, pause = time.monotonic(), 0, 1e-5
        try:
            while not request.Test(status):
                polls += 1
                self._ended_sends()
                if polls < _BUSY_POLLS:
                    time.sleep(0)
                    continue
                if time.monotonic() - start > seconds:
                    self._let_go.append((request, used))
                    raise CollectiveTimeout(name, number, seconds)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_SLEEP_S)
        except MPI.Exception as error:
            self._let_go.append((request, used))
            if error.Get_error_class() == getattr(MPI, "ERR_PROC_FAILED", -1):
                raise RankFailed(name, (), str(error)) from None
            raise

    def _ended_sends(self) -> None:
        self._sending = [each for each in self._sending if not each[0].Test()]


def world() -> Ranks:
    """All ranks, in a communicator of its own. Blocks until all are here."""
    return Ranks(library().COMM_WORLD.Dup())


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
