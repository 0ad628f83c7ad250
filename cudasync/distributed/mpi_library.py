"""Floor 5. The one place that loads mpi4py: module, dtypes, and memory that MPI still uses."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from cudasync.distributed.errors import BackendUnavailable, CollectiveTimeout

# The name of a call, its number, and its seconds.
Limit: TypeAlias = tuple[str, int, float]
# Of Open MPI and MPICH.
_THREAD_MULTIPLE = 3
# Counts of MPI are C ints.
MOST = 2**31 - 1
# Dtypes that MPI computes with, by NumPy's names; bool as bytes of 0 and 1.
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
# Reductions whose result is one of the given numbers.
ORDERED = frozenset({"min", "max"})
# For each float: integers of its size, their bits without the sign, and the bits of NaN.
_KEYS: dict[int, tuple[Any, Any, Any]] = {
    4: (np.dtype(np.int32), np.int32(0x7FFFFFFF), np.int32(0x7FC00000)),
    8: (np.dtype(np.int64), np.int64(2**63 - 1), np.int64(0x7FF8 << 48)),
}
_OPS = {"sum": "SUM", "mean": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_ASK = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version().splitlines()[0].split(",")[0].rstrip("\\0"))
"""
# The module, once it is known to accept calls from all threads.
_ASKED: set[Any] = set()
# Dead ranks, by their numbers on the communicator that found them dead.
DEAD: set[int] = set()
# Open MPI's name of the setting.
TOLERANT = "OMPI_MCA_mpi_ft_enable"
# Requests that failed or passed their deadline, with the memory that MPI may still use. The list is
# for all communicators, because a request's own communicator may be gone.
LET_GO: deque[tuple[list[Any], Any]] = deque()


def start(limit: Limit) -> None:
    """Start MPI, unless it runs; CollectiveTimeout if the other ranks do not start theirs in time.

    A process waits for the others within MPI_Init. mpi4py would call it with the GIL held, so no
    deadline could end the wait. So a thread calls it before mpi4py is loaded, without the GIL.
    Once the deadline has passed, the process can start no other MPI; `library` raises this, too.
    """
    if _STARTING:
        _STARTING[0].wait_for(limit)
        return
    if "mpi4py.MPI" in sys.modules or importlib.util.find_spec("mpi4py") is None:
        return
    rc = importlib.import_module("mpi4py").rc
    found = importlib.util.find_spec("mpi4py.MPI")
    # The program starts MPI itself, or the numbers of this MPI's interface are not known.
    if not rc.initialize or found is None or "mpiabi" in str(found.origin):
        return
    try:
        _STARTING.append(_Start(ctypes.CDLL(found.origin)))
    except (OSError, AttributeError):
        # Loading it as a module says what is wrong.
        return
    _STARTING[0].wait_for(limit)


class _Start:
    """MPI_Init_thread on a thread, and MPI_Finalize at the end of the process."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._init, self._finalize = mpi.MPI_Init_thread, mpi.MPI_Finalize
        self._is_waited_for = False
        self._thread = threading.Thread(target=self._run, name="cudasync mpi", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        provided = ctypes.c_int()
        self._init(None, None, _THREAD_MULTIPLE, ctypes.byref(provided))

    @property
    def is_pending(self) -> bool:
        """True until MPI runs."""
        return self._thread.is_alive()

    def wait_for(self, limit: Limit) -> None:
        """Wait until MPI runs; CollectiveTimeout."""
        self._thread.join(limit[2])
        if self.is_pending:
            raise CollectiveTimeout(*limit)
        if not self._is_waited_for:
            self._is_waited_for = True
            atexit.register(self._end)

    def _end(self) -> None:
        # As mpi4py does, later than all of Python's exit handlers: pushed calls may still run.
        if not library().Is_finalized():
            ctypes.pythonapi.Py_AtExit(ctypes.cast(self._finalize, ctypes.c_void_p))


# Once MPI was started here. If it never came to an end, no call of MPI can be made.
_STARTING: list[_Start] = []


def library() -> Any:
    """The module `mpi4py.MPI`, which starts MPI when it is first loaded.

    BackendUnavailable if it is missing, or if MPI accepts calls of one thread alone.
    """
    known = sys.modules.get("mpi4py.MPI")
    return known if known is not None and known in _ASKED else _loaded()


def _loaded() -> Any:
    for each in _STARTING:
        each.wait_for(("init", 0, 0.0))
    try:
        MPI = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailable("mpi", str(error), hint="pip install 'cudasync[mpi]'") from None
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise BackendUnavailable(
            "mpi",
            "MPI was initialised without MPI_THREAD_MULTIPLE",
            hint="let cudasync initialise MPI, or request this level",
        )
    _ASKED.add(MPI)
    return MPI


def about() -> str:
    """Name and version of the MPI, found without starting it. BackendUnavailable without MPI."""
    hint = "pip install 'cudasync[mpi]'"
    if importlib.util.find_spec("mpi4py") is None:
        raise BackendUnavailable("mpi", "mpi4py is not installed", hint=hint)
    # In a process of its own: a process that has loaded MPI without starting it cannot use it.
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=60, check=False
    )
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        raise BackendUnavailable("mpi", last, hint=f"load this machine's MPI, or {hint}")
    return asked.stdout.strip()


def end_what_was_let_go() -> None:
    # One thread alone takes each entry, and drops it once MPI has finished with it.
    for _ in range(len(LET_GO)):
        with suppress(IndexError, library().Exception):
            requests, used = LET_GO.popleft()
            left = [each for each in requests if not each.Test()]
            if left:
                LET_GO.append((left, used))


def has_lost_a_rank() -> bool:
    """True if a rank of the program is known to be dead, or has not come to MPI's start."""
    if any(each.is_pending for each in _STARTING):
        return True
    if DEAD or os.environ.get(TOLERANT) != "1":
        return bool(DEAD)
    MPI = library()
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return False
    # A probe makes MPI process messages that have arrived.
    MPI.COMM_SELF.Iprobe()
    return int(MPI.COMM_WORLD.Get_failed().size) > 0


def number_on_this_machine() -> tuple[int, int]:
    """This rank's number among the ranks on its machine, from 0, and their count."""
    MPI = library()
    near = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    found = int(near.rank), int(near.size)
    near.Free()
    return found


@cache
def raise_unless_it_computes(dtype: np.dtype[Any]) -> None:
    """TypeError for a dtype that no reduction of MPI takes."""
    # The cache keeps each accepted dtype, since NumPy builds the name again each time. An exception
    # is not cached.
    if dtype.name not in _TYPES:
        raise TypeError(f"MPI does not compute with {dtype}: it takes {', '.join(_TYPES)}")


@cache
def reduction(name: str) -> Any:
    return getattr(library(), _OPS[name])


@cache
def type_of(dtype: np.dtype[Any]) -> Any:
    """MPI's type of numbers; bytes for bool."""
    return getattr(library(), _TYPES[dtype.name])


def as_numbers(x: Any) -> list[Any]:
    plain = x.view(np.uint8) if x.dtype == np.bool_ else x
    return [plain, type_of(x.dtype)]


def as_bytes(x: Any) -> list[Any]:
    """The buffer for an array that MPI only moves."""
    return [x.reshape(-1).view(np.uint8), library().BYTE]


def ordered_keys(x: Any, op: str) -> Any:
    """Integers in the order of the floats `x`, -0 before 0, whose `op` propagates NaN; flat.

    So NaN is the last for "max" and the first for "min", whatever its sign.
    """
    kind, mask, nan = _KEYS[x.itemsize]
    flat = x.reshape(-1)
    keys = _flipped(flat.view(kind), mask)
    np.putmask(keys, np.isnan(flat), nan if op == "max" else ~nan)
    return keys


def take_values(keys: Any, into: Any) -> None:
    """The floats of these keys."""
    kind, mask, _ = _KEYS[into.itemsize]
    into.reshape(-1).view(kind)[...] = _flipped(keys, mask)


def _flipped(bits: Any, mask: Any) -> Any:
    """Keys of bits, and bits of keys: a negative number has a larger bit pattern."""
    found = bits >> (8 * bits.itemsize - 1)
    found &= mask
    found ^= bits
    return found
