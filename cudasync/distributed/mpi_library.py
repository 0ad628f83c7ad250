"""Floor 5. The one place that meets mpi4py: its communicator, its dtypes, its requests.

Every call that may wait for another rank is started without blocking and polled, so that it ends at
a deadline. What moves without arithmetic moves as bytes.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from functools import cache
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
# The module, once it is known to take calls of all threads.
_ASKED: set[Any] = set()
# Ranks that have died, by their numbers on the communicator that found it out.
DEAD: set[int] = set()
# Of Open MPI, in its spelling.
_TOLERANT = "OMPI_MCA_mpi_ft_enable"
# A rank that is told that some rank has died waits so long to learn which.
_HEARSAY_S = 2.0
# Requests that were given up at a deadline, or failed, with the memory that MPI may still use: of
# all communicators, since their own may be gone.
LET_GO: deque[tuple[Any, Any]] = deque()
# A wait asks for so long without a pause, as MPI's own waits do for ever; then it lets others have
# the processor in between; then it sleeps, longer and longer.
_SPIN_S = 300e-6
_YIELD_S = 2e-3
_LONGEST_SLEEP_S = 0.001


def library() -> Any:
    """The module `mpi4py.MPI`, which starts MPI when it is first loaded. BackendUnavailable where
    it is missing, or where MPI takes calls of one thread alone."""
    known = sys.modules.get("mpi4py.MPI")
    return known if known is not None and known in _ASKED else _loaded()


def _loaded() -> Any:
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
    _ASKED.add(MPI)
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

    def shrink(self, limit: Limit) -> Ranks:
        """The ranks that are alive; all of them call it. BackendUnavailable without ULFM."""
        if os.environ.get(_TOLERANT) != "1":
            raise BackendUnavailable(
                "mpi",
                "this run does not go on without a rank",
                hint="start it by cudasync launch --fault-tolerant, with Open MPI 5",
            )
        made: list[Any] = []

        def shrink() -> None:
            self.handle.Revoke()
            made.append(self.handle.Shrink())

        # Open MPI 5.0's Ishrink, which has a request to poll, fails on what is revoked.
        if not _in_time(shrink, limit[2]):
            raise CollectiveTimeout(*limit)
        return Ranks(made[0])

    def _end(self, request: Any, used: Any, limit: Limit, status: Any = None) -> None:
        """Wait for a request, whose bytes are `used`; CollectiveTimeout at its deadline."""
        try:
            if not self._wait(lambda: request.Test(status), limit):
                raise CollectiveTimeout(*limit)
        except Exception:
            LET_GO.append((request, used))
            raise

    def _wait(self, is_over: Callable[[], Any], limit: Limit) -> bool:
        """Ask until it is so; False at the deadline."""
        start, pause = time.monotonic(), 1e-5
        while not is_over():
            if self._sending or LET_GO:
                self._ended_sends()
            waited = time.monotonic() - start
            if waited < _SPIN_S:
                continue
            if waited > limit[2]:
                return False
            time.sleep(0 if waited < _YIELD_S else pause)
            if waited > _YIELD_S:
                pause = min(2 * pause, _LONGEST_SLEEP_S)
        return True

    def known(self, error: BaseException, limit: Limit) -> BaseException:
        """RankFailed for what MPI says of the dead, any other error as it is. (User Level Failure
        Mitigation, where it is on)"""
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
        # Ranks that wait for others than the dead one hear of it, too.
        self.handle.Revoke()
        found = self._dead()
        DEAD.update(found)
        return RankFailed(limit[0], found, str(error))

    def _dead(self) -> list[int]:
        """The ranks that are known to be dead. Who hears of it by another knows a little later."""
        end = time.monotonic() + _HEARSAY_S
        while True:
            failed = self.handle.Get_failed()
            if failed.size or time.monotonic() > end:
                return sorted(failed.Translate_ranks(None, self.handle.Get_group()))
            # So that MPI looks at what has come; of ours, which is revoked, it says nothing more.
            library().COMM_SELF.Iprobe()
            time.sleep(_LONGEST_SLEEP_S)

    def _ended_sends(self) -> None:
        self._sending = [each for each in self._sending if not each[0].Test()]
        if LET_GO:
            _end_what_was_let_go()


def _in_time(call: Callable[[], None], seconds: float) -> bool:
    """Make a call of MPI that has no deadline of its own; it may go on after ours."""
    thread = threading.Thread(target=call, name="cudasync mpi", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _end_what_was_let_go() -> None:
    # Each is taken by one thread alone, and is nobody's once MPI is done with it.
    for _ in range(len(LET_GO)):
        with suppress(IndexError, library().Exception):
            request, used = LET_GO.popleft()
            if not request.Test():
                LET_GO.append((request, used))


def has_lost_a_rank() -> bool:
    """True if a rank of the program is known to be dead, whoever found it out."""
    if DEAD or os.environ.get(_TOLERANT) != "1":
        return bool(DEAD)
    MPI = library()
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return False
    # So that MPI looks at what has come.
    MPI.COMM_SELF.Iprobe()
    return int(MPI.COMM_WORLD.Get_failed().size) > 0


def world(seconds: float) -> Ranks:
    """All ranks, in a communicator of its own. Blocks until all are here; CollectiveTimeout."""
    first = Ranks(library().COMM_WORLD)
    first.barrier(("init", 0, seconds))
    return first.duplicate()


def number_on_this_machine() -> tuple[int, int]:
    """Which one this rank is among those that share its memory, from 0, and how many these are."""
    MPI = library()
    near = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    found = int(near.rank), int(near.size)
    near.Free()
    return found


@cache
def raise_unless_it_computes(dtype: np.dtype[Any]) -> None:
    """TypeError for a dtype that no reduction of MPI takes."""
    # What raises is not kept; the rest is asked once, since NumPy makes a name anew each time.
    if dtype.name not in _TYPES:
        raise TypeError(f"MPI does not compute with {dtype}: it takes {', '.join(_TYPES)}")


@cache
def _op(name: str) -> Any:
    return getattr(library(), _OPS[name])


@cache
def _type(dtype: np.dtype[Any]) -> Any:
    return getattr(library(), _TYPES[dtype.name])


def _numbers(x: Any) -> list[Any]:
    plain = x.view(np.uint8) if x.dtype == np.bool_ else x
    return [plain, _type(x.dtype)]


def _bytes(x: Any) -> list[Any]:
    return [x.reshape(-1).view(np.uint8), library().BYTE]
